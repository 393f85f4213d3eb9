"""Sign-in with an OpenID Connect provider, and its access tokens."""
