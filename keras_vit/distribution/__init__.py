"""What makes a step on N replicas equal to the step of one device."""
