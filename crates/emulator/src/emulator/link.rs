//! A link that runs: a device at either end, and two directions between them.

use bentpipe_os::tun::Tun;

use super::direction_state::DirectionState;
use super::{EmulatorError, End, LinkPlan};
use crate::address;
use crate::direction::DirectionName;

/// Two devices and what moves packets between them.
pub(super) struct Link {
    pub name: String,
    pub terminal: Tun,
    pub gateway: Tun,
    /// From gateway to terminal.
    pub forward: DirectionState,
    /// From terminal to gateway.
    pub r#return: DirectionState,
    /// Longest packet of either device.
    pub mtu: usize,
}

/// One direction of a link with the devices between which it moves packets.
pub(super) struct Transfer<'a> {
    pub state: &'a mut DirectionState,
    pub input: &'a mut Tun,
    pub output: &'a mut Tun,
}

impl Link {
    /// Makes both devices.
    pub fn create(plan: &LinkPlan) -> Result<Self, EmulatorError> {
        address::check_ends(&plan.terminal.tun.addresses, &plan.gateway.tun.addresses)?;
        let device =
            |end: &End, other: &End| Tun::create(&end.namespace, &end.tun, &other.tun.addresses);
        let mtu = plan.gateway.tun.mtu.max(plan.terminal.tun.mtu);
        Ok(Self {
            name: plan.name.clone(),
            gateway: device(&plan.gateway, &plan.terminal)?,
            terminal: device(&plan.terminal, &plan.gateway)?,
            forward: DirectionState::new(&plan.forward, plan.seeds.forward),
            r#return: DirectionState::new(&plan.r#return, plan.seeds.r#return),
            mtu: mtu as usize,
        })
    }

    pub fn state(&self, direction: DirectionName) -> &DirectionState {
        match direction {
            DirectionName::Forward => &self.forward,
            DirectionName::Return => &self.r#return,
        }
    }

    pub fn state_mut(&mut self, direction: DirectionName) -> &mut DirectionState {
        match direction {
            DirectionName::Forward => &mut self.forward,
            DirectionName::Return => &mut self.r#return,
        }
    }

    /// The device whose packets take that direction.
    pub fn input(&self, direction: DirectionName) -> &Tun {
        match direction {
            DirectionName::Forward => &self.gateway,
            DirectionName::Return => &self.terminal,
        }
    }

    /// That direction with both its devices.
    pub fn transfer(&mut self, direction: DirectionName) -> Transfer<'_> {
        match direction {
            DirectionName::Forward => Transfer {
                state: &mut self.forward,
                input: &mut self.gateway,
                output: &mut self.terminal,
            },
            DirectionName::Return => Transfer {
                state: &mut self.r#return,
                input: &mut self.terminal,
                output: &mut self.gateway,
            },
        }
    }
}
