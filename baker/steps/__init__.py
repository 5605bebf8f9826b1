"""The steps of a build. They know the protocols of the doors, never an implementation; `baker.pipeline` puts them in order."""
