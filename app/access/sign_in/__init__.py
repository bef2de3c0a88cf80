"""Sign-in of people at an identity provider: the code flow of OpenID Connect."""
