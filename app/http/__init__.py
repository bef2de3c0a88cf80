"""Between the server and the routes: who is answered, and under which names."""
