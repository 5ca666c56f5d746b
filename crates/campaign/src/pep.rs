//! `[pep]` of a plan: splitting proxies at both ends of the link.

use bentpipe_link::Scenario;
use bentpipe_quicpep::proxy::Mode;
use bentpipe_quicpep::transport::Side;
use bentpipe_sim::quic::{FlowPlan, ProxyPlan, SplitPlan};
use bentpipe_sim::{LinkPlan, Nodes};
use bentpipe_units::{Bytes, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Proxies as `bentpipe quic-pep` at both ends of the link: flows lead from a terminal over a local
/// network to the one, and from the other over the ground to their gateways.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PepFile {
    /// When the first flow begins: by then connections between the proxies are ready.
    pub start: Span,
    /// Who is waited for at the terminals' end.
    pub mode: Mode,
    /// Connections that are kept ready between the two.
    pub ready: usize,
    /// What all connections of one proxy may hold together.
    #[schemars(with = "String")]
    pub memory: Bytes,
    /// The network of the terminals.
    pub local: Ground,
    /// The network of the gateways.
    pub ground: Ground,
    /// How both proxies are set up towards each other, as in quic-pep.toml.
    pub towards_satellite: Side,
    /// And towards terminals and gateways.
    pub towards_ground: Side,
}

/// A network without a satellite; it loses nothing.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ground {
    /// In both directions.
    #[schemars(with = "String")]
    pub rate: Rate,
    /// One way.
    pub delay: Span,
}

impl Default for PepFile {
    fn default() -> Self {
        let rate = Rate::from_bits_per_second(1_000_000_000);
        Self {
            start: Span::from_millis(5_000),
            mode: Mode::default(),
            ready: 4,
            memory: Bytes::new(1 << 30),
            local: Ground {
                rate,
                delay: Span::from_nanos(500_000),
            },
            ground: Ground {
                rate,
                delay: Span::from_millis(40),
            },
            towards_satellite: Side::default(),
            towards_ground: Side::ground(rate, Span::from_millis(100)),
        }
    }
}

impl Ground {
    /// As a link, with a queue that holds whatever comes.
    fn link(&self) -> Result<LinkPlan, String> {
        let direction = format!(
            "{{ rate = \"{}\", delay = \"{}\", queue = \"64 MB\" }}",
            self.rate, self.delay
        );
        let text = format!("name = \"ground\"\nforward = {direction}\nreturn = {direction}\n");
        let link = Scenario::parse(&text).map_err(|error| error.to_string())?;
        Ok(LinkPlan::of(&link))
    }
}

impl PepFile {
    /// What flows take the round trip for until they have measured it.
    pub fn rtt(&self) -> Span {
        self.towards_ground.expected_rtt
    }

    /// Checks what the simulator does not see.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (field, ground) in [("pep.local", &self.local), ("pep.ground", &self.ground)] {
            ground.link().map_err(|why| (field, why))?;
        }
        Ok(())
    }

    /// `flows` over the first of `links`, through two proxies, whose own links are added.
    pub fn split(&self, mut flows: Vec<FlowPlan>, links: &mut Vec<LinkPlan>) -> Nodes {
        let [local, ground] = [&self.local, &self.ground].map(|network| {
            links.extend(network.link());
            links.len() - 1
        });
        let proxy = |path, towards_clients: &Side, towards_next: &Side| ProxyPlan {
            path,
            mode: self.mode,
            ready: self.ready,
            memory: self.memory,
            towards_clients: towards_clients.clone(),
            towards_next: towards_next.clone(),
        };
        for flow in &mut flows {
            flow.start = flow.start + self.start;
            flow.path = vec![local];
        }
        Nodes::Split(SplitPlan {
            flows,
            proxies: vec![
                proxy(vec![ground], &self.towards_satellite, &self.towards_ground),
                proxy(vec![0], &self.towards_ground, &self.towards_satellite),
            ],
        })
    }
}
