"""Studies of patients: their images, and the studies that are like them."""
