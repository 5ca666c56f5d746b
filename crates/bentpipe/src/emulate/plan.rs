//! The links of a run: between which places, with which addresses.

use std::net::IpAddr;
use std::str::FromStr;

use bentpipe_emulator::{End, LinkPlan, next_addresses};
use bentpipe_link::Seeds;
use bentpipe_link::spec::{DirectionSpec, Scenario};
use bentpipe_os::namespace::{Namespace, NamespaceError};
use bentpipe_os::tun::{self, TunSpec};
use bentpipe_units::Span;
use ipnet::IpNet;

use super::Command;
use super::program::{self, PrivateEnds};
use crate::failure::Failure;

/// Where one end of a hop is to be.
#[derive(Debug, Clone)]
pub struct Place {
    namespace: String,
    device: Option<String>,
}

impl FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        // A path is a namespace's own name, as in /proc/1234/ns/net.
        let (namespace, device) = match text.split_once('/') {
            Some((namespace, device)) if !text.starts_with('/') => (namespace, Some(device)),
            _ => (text, None),
        };
        if namespace.is_empty() {
            return Err("a network namespace's name, or a path like /proc/PID/ns/net".into());
        }
        if let Some(device) = device {
            tun::check_name(device).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            device: device.map(str::to_owned),
        })
    }
}

/// Reads an address with the length of its network.
pub fn address(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| match text.parse::<IpAddr>() {
        Ok(address) => {
            let length = if address.is_ipv4() { 24 } else { 64 };
            format!("{text} does not say how large its network is: write {text}/{length}")
        }
        Err(_) => {
            format!("{text:?} is not an address with the length of its network, like 10.0.0.1/24")
        }
    })
}

/// A terminal's place and a gateway's, each with its addresses.
#[derive(Debug, Clone)]
pub struct Ends {
    terminal: (Place, Vec<IpNet>),
    gateway: (Place, Vec<IpNet>),
}

impl FromStr for Ends {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end = |text: &str| {
            let mut parts = text.split(',');
            let place = parts.next().unwrap_or_default().parse()?;
            let addresses = parts.map(address).collect::<Result<_, String>>()?;
            Ok::<_, String>((place, addresses))
        };
        let (terminal, gateway) = text
            .split_once('=')
            .ok_or("terminal and gateway with a \"=\" between them, like term1=gw/sat1")?;
        Ok(Self {
            terminal: end(terminal)?,
            gateway: end(gateway)?,
        })
    }
}

impl Place {
    fn open(&self, default: &str, mtu: u32, addresses: &[IpNet]) -> Result<End, Failure> {
        let namespace = Namespace::open(&self.namespace).map_err(namespace_failure)?;
        Ok(End {
            namespace,
            tun: TunSpec {
                device: self.device.clone().unwrap_or_else(|| default.to_owned()),
                mtu,
                addresses: addresses.to_vec(),
            },
        })
    }
}

/// The links between the places that are named.
pub fn plans(command: &Command, scenario: &Scenario) -> Result<Vec<LinkPlan>, Failure> {
    let seed = command.seed.unwrap_or(scenario.seed);
    let mtu = command.mtu;
    let hop =
        |name: String, ends: &Ends, number| satellite_plan(command, scenario, name, ends, number);
    let mut plans = Vec::new();
    if let (Some(terminal), Some(gateway)) = (&command.terminal, &command.gateway) {
        let ends = Ends {
            terminal: (terminal.clone(), command.terminal_address.clone()),
            gateway: (gateway.clone(), command.gateway_address.clone()),
        };
        plans.push(hop("satellite".into(), &ends, 0)?);
    }
    for (number, ends) in (1..).zip(&command.link) {
        plans.push(hop(format!("satellite-{number}"), ends, number)?);
    }
    if let (Some(gateway), Some(server)) = (&command.ground_gateway, &command.ground_server) {
        let ground: DirectionSpec = scenario
            .ground
            .as_ref()
            .ok_or_else(|| {
                Failure::file(
                    &command.scenario,
                    "--ground-gateway and --ground-server need a [ground] table with a delay, like delay = \"40 ms\"",
                )
            })?
            .direction();
        plans.push(LinkPlan {
            name: "ground".into(),
            terminal: gateway.open("gnd0", mtu, &command.ground_gateway_address)?,
            gateway: server.open("gnd0", mtu, &command.ground_server_address)?,
            forward: ground.clone(),
            r#return: ground,
            new_address_at: Vec::new(),
            seeds: Seeds::of_ground(seed, 0),
        });
    }
    Ok(plans)
}

/// The link of a program, between namespaces of its own.
pub fn private_plan(
    command: &Command,
    scenario: &Scenario,
    ends: &PrivateEnds,
) -> Result<LinkPlan, Failure> {
    let addresses = |given: &[IpNet], otherwise: [&str; 2]| -> Vec<IpNet> {
        if given.is_empty() {
            otherwise
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect()
        } else {
            given.to_vec()
        }
    };
    let place = |namespace: &Namespace| Place {
        namespace: namespace.path().display().to_string(),
        device: None,
    };
    let ends = Ends {
        terminal: (
            place(&ends.terminal),
            addresses(&command.terminal_address, program::TERMINAL),
        ),
        gateway: (
            place(&ends.gateway),
            addresses(&command.gateway_address, program::GATEWAY),
        ),
    };
    satellite_plan(command, scenario, "satellite".into(), &ends, 0)
}

/// A satellite hop between such ends.
fn satellite_plan(
    command: &Command,
    scenario: &Scenario,
    name: String,
    ends: &Ends,
    number: u32,
) -> Result<LinkPlan, Failure> {
    let end = |(place, addresses): &(Place, Vec<IpNet>)| place.open("sat0", command.mtu, addresses);
    let new_address_at = new_addresses(command, scenario, ends)?;
    Ok(LinkPlan {
        name,
        terminal: end(&ends.terminal)?,
        gateway: end(&ends.gateway)?,
        forward: scenario.forward.clone(),
        r#return: scenario.r#return.clone(),
        new_address_at,
        seeds: Seeds::of_link(command.seed.unwrap_or(scenario.seed), number),
    })
}

/// When the terminal gets new addresses, checked: there are such.
fn new_addresses(
    command: &Command,
    scenario: &Scenario,
    ends: &Ends,
) -> Result<Vec<Span>, Failure> {
    let switches = scenario.switch.iter().enumerate();
    let mut own = ends.terminal.1.clone();
    let mut moments = Vec::new();
    for (number, switch) in switches.filter(|(_, switch)| switch.new_address) {
        own = next_addresses(&own, &ends.gateway.1).map_err(|error| {
            Failure::file(
                &command.scenario,
                format!("switch.{number}.new_address = true: {error}"),
            )
        })?;
        moments.push(switch.at);
    }
    Ok(moments)
}

fn namespace_failure(error: NamespaceError) -> Failure {
    Failure::Runtime(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<(String, Option<String>), String> {
        text.parse::<Place>()
            .map(|place| (place.namespace, place.device))
    }

    #[test]
    fn a_place_is_a_namespace_with_or_without_a_device() {
        assert_eq!(place("gw"), Ok(("gw".into(), None)));
        assert_eq!(place("gw/sat1"), Ok(("gw".into(), Some("sat1".into()))));
        assert_eq!(
            place("/proc/42/ns/net"),
            Ok(("/proc/42/ns/net".into(), None))
        );
    }

    #[test]
    fn a_link_has_two_ends_with_their_addresses() {
        let ends: Ends = "t1,10.0.0.1/30,fd00::1/64=gw/sat1".parse().unwrap();
        assert_eq!(ends.terminal.0.namespace, "t1");
        assert_eq!(ends.terminal.1.len(), 2);
        assert_eq!(ends.gateway.0.device.as_deref(), Some("sat1"));
        for text in ["t1", "t1=", "t1,10.0.0.1=gw", "=gw"] {
            assert!(text.parse::<Ends>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_device_must_have_a_name_that_the_kernel_takes() {
        for text in ["gw/", "gw/a b", "gw/longer-than-fifteen", "gw/..", ""] {
            assert!(place(text).is_err(), "{text:?}");
        }
    }
}
