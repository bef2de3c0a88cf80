"""HTTP concerns of the application: problem documents, request context, body limits, methods, ranges."""
