"""Progress of collections that follow image archives."""
