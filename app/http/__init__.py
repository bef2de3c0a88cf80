"""Around the application: the server's protocol, admission, deadlines and the stop."""
