//! The network of a gateway's terminals: an interface, and what the machine's firewall does
//! with its packets.
//!
//! Forwarding, hop limits, errors and the translation of addresses are the kernel's, for every
//! protocol. Raw sockets in their place would need the same privileges, a table of their own for
//! each protocol, and would have to make up errors that the kernel knows better.

use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::gateway::ip_network::IpNetwork;
use ipnet::IpNet;

use crate::ip::{Interface, IpError, check_forwarding};
use crate::tproxy::nft;

/// The network of the gateway that listens at `port`, with `networks`, at most one of each
/// family. Networks that are not public are translated to the machine's addresses.
///
/// # Errors
/// The machine does not forward, or there is no interface or no nftables to be had.
pub async fn network(networks: &[IpNet], port: u16) -> Result<IpNetwork, IpError> {
    for network in networks {
        check_forwarding(network.addr().is_ipv6())?;
    }
    let name = format!("bp-gw-{port}");
    let addresses: Vec<_> = networks
        .iter()
        .filter_map(|network| {
            let address = IpNetwork::gateway_address(network);
            IpNet::new(address, network.prefix_len()).ok()
        })
        .collect();
    let interface = Interface::open(&name, &addresses)?;
    nft::load(rules(&name, port, networks))
        .await
        .map_err(|error| IpError::Rules(error.to_string()))?;
    Ok(IpNetwork::new(networks.to_vec(), Box::new(interface)))
}

/// Removes the rules of the gateway that listened at `port`; without its interface they match
/// nothing.
pub async fn remove(port: u16) {
    let _ = nft::load(format!("delete table inet {}\n", table(port))).await;
}

fn table(port: u16) -> String {
    format!("ip_bentpipe_{port}")
}

fn rules(interface: &str, port: u16, networks: &[IpNet]) -> String {
    let table = table(port);
    let public = Egress::default();
    let translated: String = networks
        .iter()
        .filter(|network| public.check(network.addr(), &[]).is_err())
        .map(|network| {
            let family = if network.addr().is_ipv4() {
                "ip"
            } else {
                "ip6"
            };
            format!("{family} saddr {} masquerade\n", network.trunc())
        })
        .collect();
    // Nobody begins to speak to a terminal, and no terminal to another.
    format!(
        "table inet {table}\n\
         delete table inet {table}\n\
         table inet {table} {{\n\
         chain forward {{\n\
         type filter hook forward priority filter; policy accept;\n\
         oifname \"{interface}\" ct state {{ new, invalid }} drop\n\
         }}\n\
         chain translate {{\n\
         type nat hook postrouting priority srcnat; policy accept;\n\
         oifname \"{interface}\" return\n\
         {translated}\
         }}\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_public_is_translated() {
        let networks = ["10.88.0.0/16", "2600:1f00::/64"].map(|text| text.parse().unwrap());
        let rules = rules("bp-gw-4433", 4433, &networks);
        assert!(rules.contains("ip saddr 10.88.0.0/16 masquerade"));
        assert!(!rules.contains("2600:"));
    }
}
