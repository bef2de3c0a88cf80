"""Around the application: the server's protocol, hosts and origins, admission, deadlines and the stop."""
