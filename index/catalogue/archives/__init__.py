"""What collections have taken over from image archives."""
