"""The commands of `attnlib`, by what they are about."""
