"""What the lab raises when it cannot do what it was asked to do."""


class LabError(Exception):
    """The lab itself could not proceed. The message says what happened, to what, and what to do."""


class MissingCapabilityError(LabError):
    """The machine does not allow something that is needed."""


class ProgramError(LabError):
    """A supervised program ended, or stayed silent, when it should have been running."""


class RegistrationError(LabError):
    """A workload or a system lacks a part of its contract."""


class UnknownNameError(LabError):
    """Nothing of that name is registered."""


class NotInPathError(LabError):
    """A system runs, but the traffic does not go through it."""


class PlanError(LabError):
    """A campaign's plan is wrong. The message names the field, the value and what would be right."""


class CampaignError(LabError):
    """A campaign's directory is not what was asked for: absent, begun before, or in use."""


class UnsupportedError(LabError):
    """A system or a workload does not exist for the clock that was asked for."""


class DiskFullError(LabError):
    """There is no room for what was measured; what was kept before is whole."""
