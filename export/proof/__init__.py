"""What proves an artefact equal to its model, and reads artefacts without believing them."""
