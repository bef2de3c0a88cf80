"""Studies of image archives, and reports of hospitals."""
