"""How large an image may be, whoever reads it. predict.py of a bundle imports nothing, and so repeats MOST_PIXELS."""

MOST_PIXELS = 2**26  # 8192 x 8192; cameras' 61 million
MOST_BYTES = 8 * MOST_PIXELS  # of a file: four channels of 16 bits each
MOST_SCANNED = 64 * MOST_PIXELS  # pixels times scans of a JPEG: seconds. Encoders write 1 to 20 scans.
