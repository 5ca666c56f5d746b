"""What the lab raises when it cannot do what it was asked to do."""


class LabError(Exception):
    """The lab itself could not proceed. The message says what happened, to what, and what to do."""


class MissingCapabilityError(LabError):
    """The machine does not allow something that is needed."""


class ProgramError(LabError):
    """A supervised program ended, or stayed silent, when it should have been running."""
