//! The plan of a run: links, nodes, times.

use bentpipe_units::{Rate, Span};
pub use bentpipe_vnet::plan::{LinkPlan, Towards};

use crate::problem::{Move, PlanError};
use crate::quic::{FlowPlan, ProxyPlan, SplitPlan};
use crate::tunnel::TunnelPlan;

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seeds everything that is drawn.
    pub seed: u64,
    /// The links, to be named by their place.
    pub links: Vec<LinkPlan>,
    /// Who communicates over them.
    pub nodes: Nodes,
    /// The run ends here at the latest.
    pub until: Span,
    /// How often a sample is recorded of each flow or session.
    pub sample_every: Span,
}

/// The nodes of a run.
#[derive(Debug, Clone)]
pub enum Nodes {
    /// QUIC connections, each between a terminal and a gateway of its own, without an async
    /// runtime.
    Quic(Vec<FlowPlan>),
    /// The same on the async runtime.
    QuicOnRuntime(Vec<FlowPlan>),
    /// The same through proxies that split them, as `bentpipe quic-pep` does.
    Split(SplitPlan),
    /// Terminals and a gateway as the daemons have them.
    Tunnel(TunnelPlan),
}

/// The longest run.
const LONGEST: Span = Span::from_millis(30 * 24 * 3600 * 1000);
/// Samples that a run may record: some GB.
const MOST_SAMPLES: u64 = 10_000_000;

impl Plan {
    /// Checks that the plan can be run and ends.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.until < Span::from_millis(1) || self.until > LONGEST {
            return Err(PlanError::Endless(self.until));
        }
        match &self.nodes {
            Nodes::Quic(flows) | Nodes::QuicOnRuntime(flows) => {
                if let Nodes::QuicOnRuntime(_) = self.nodes {
                    crate::quic::plan::check_on_runtime(flows)?;
                }
                self.check_samples(flows.len())?;
                self.check_links(flows.iter().map(|flow| (&flow.path, &flow.moves)))?;
                crate::quic::plan::check(flows, self.until)
            }
            Nodes::Split(SplitPlan { flows, proxies }) => {
                crate::quic::plan::check_on_runtime(flows)?;
                self.check_samples(flows.len())?;
                self.check_links(flows.iter().map(|flow| (&flow.path, &flow.moves)))?;
                crate::quic::plan::check(flows, self.until)?;
                self.check_proxies(proxies)
            }
            Nodes::Tunnel(tunnel) => {
                if self.sample_every < Span::from_millis(1) {
                    return Err(PlanError::Samples(self.sample_every));
                }
                let terminals = tunnel.terminals.iter();
                self.check_links(terminals.map(|terminal| (&terminal.path, &terminal.moves)))?;
                tunnel.check()
            }
        }
    }

    fn check_proxies(&self, proxies: &[ProxyPlan]) -> Result<(), PlanError> {
        if proxies.is_empty() {
            return Err(PlanError::NoProxy);
        }
        for (number, proxy) in proxies.iter().enumerate() {
            let links = self.links.len();
            if proxy.path.is_empty() || proxy.path.iter().any(|&link| link >= links) {
                return Err(PlanError::ProxyPath(number));
            }
            for side in [&proxy.towards_clients, &proxy.towards_next] {
                side.check()
                    .map_err(|error| PlanError::Proxy(number, error))?;
            }
        }
        Ok(())
    }

    fn check_samples(&self, flows: usize) -> Result<(), PlanError> {
        let flows = flows.max(1) as u64;
        let least = Span::from_nanos((self.until.as_nanos() / MOST_SAMPLES * flows).max(1));
        if self.sample_every >= least {
            return Ok(());
        }
        let every = self.sample_every.as_nanos().max(1);
        Err(PlanError::TooManySamples {
            every: self.sample_every,
            until: self.until,
            samples: self.until.as_nanos() as f64 / every as f64 * flows as f64,
            least,
        })
    }

    /// Checks that no link stops for ever and that every path leads over links that are there.
    fn check_links<'a>(
        &self,
        paths: impl Iterator<Item = (&'a Vec<usize>, &'a Vec<Move>)>,
    ) -> Result<(), PlanError> {
        let zero = Some(Rate::from_bits_per_second(0));
        for (index, link) in self.links.iter().enumerate() {
            let mut changes = link.forward.change.iter().chain(&link.r#return.change);
            if changes.any(|change| change.change.rate == zero) {
                return Err(PlanError::NoRate(index));
            }
        }
        let links = self.links.len();
        for (flow, (path, moves)) in paths.enumerate() {
            if path.is_empty() || moves.iter().any(|to| to.path.is_empty()) {
                return Err(PlanError::NoPath(flow));
            }
            let mut all = path.iter().chain(moves.iter().flat_map(|to| &to.path));
            if let Some(&link) = all.find(|&&link| link >= links) {
                return Err(PlanError::NoSuchLink { flow, link, links });
            }
        }
        Ok(())
    }
}
