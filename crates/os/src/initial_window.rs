//! The initial window of TCP connections, which Linux takes from routes.
//!
//! It is an attribute of a route (`initcwnd` in ip-route(8)), so sockets that shall have one
//! carry a mark, and a routing rule leads packets with that mark to a table with copies of the
//! main table's routes that differ in nothing else. What has no mark is routed as before.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHopFlags,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{Netlink, mark_rule};
use crate::network_changes::{self, Watched};

/// Behind what transparent ingress has, before the operator's own rules: it matches nothing but
/// our mark.
const PRIORITY: u32 = 99;
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// Routes with an initial window, for as long as this is held.
#[derive(Debug)]
pub struct InitialWindow {
    packets: u32,
    table: Arc<Mutex<Table>>,
    mark: u32,
}

#[derive(Debug)]
struct Table {
    /// Its number, and the mark that leads there.
    mark: u32,
    packets: u32,
    routes: Vec<RouteMessage>,
    removed: bool,
}

impl InitialWindow {
    /// Makes the routes, for sockets with `mark`; they follow the main table's. What an earlier
    /// process has left of the same mark is replaced.
    ///
    /// # Errors
    /// When the kernel refuses, for want of CAP_NET_ADMIN most likely.
    pub fn install(packets: u32, mark: u32) -> io::Result<Self> {
        Self::make(packets, mark).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "the routes with an initial window of {packets} packets cannot be made ({error}); that needs root or the capability CAP_NET_ADMIN"
                ),
            )
        })
    }

    fn make(packets: u32, mark: u32) -> io::Result<Self> {
        let mut table = Table {
            mark,
            packets,
            routes: Vec::new(),
            removed: false,
        };
        let mut netlink = Netlink::open()?;
        for family in FAMILIES {
            table.routes.extend(netlink.routes(family, mark)?);
        }
        table.remove(&mut netlink);
        let window = Self {
            packets,
            table: Arc::new(Mutex::new(table)),
            mark,
        };
        // From here on whatever has been made goes again when `window` does.
        locked(&window.table).follow(&mut netlink)?;
        for family in FAMILIES {
            let rule = RouteNetlinkMessage::NewRule(mark_rule(family, mark, PRIORITY));
            match netlink.tell(rule, NLM_F_CREATE | NLM_F_EXCL) {
                // A kernel without IPv6 has no rules of it.
                Err(error) if family == AddressFamily::Inet => return Err(error),
                _ => {}
            }
        }
        let table = window.table.clone();
        network_changes::watch(Watched::Network, move || {
            let mut table = locked(&table);
            let followed = Netlink::open().and_then(|mut netlink| match table.removed {
                true => Ok(()),
                false => table.follow(&mut netlink),
            });
            if let Err(error) = followed {
                tracing::warn!("the routes with an initial window are out of date: {error}");
            }
        })?;
        Ok(window)
    }

    /// What sockets carry that shall have it.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// The window, packets.
    pub fn packets(&self) -> u32 {
        self.packets
    }
}

impl Drop for InitialWindow {
    fn drop(&mut self) {
        let mut table = locked(&self.table);
        table.removed = true;
        if let Ok(mut netlink) = Netlink::open() {
            table.remove(&mut netlink);
        }
    }
}

impl Table {
    /// Makes the routes those that the main table has now.
    fn follow(&mut self, netlink: &mut Netlink) -> io::Result<()> {
        let main = u32::from(RouteHeader::RT_TABLE_MAIN);
        let mut wanted = Vec::new();
        for family in FAMILIES {
            let routes = netlink.routes(family, main)?;
            wanted.extend(routes.into_iter().map(|route| self.copy(route)));
        }
        if wanted == self.routes {
            return Ok(());
        }
        self.remove_routes(netlink);
        for route in wanted {
            // Of IPv6, several devices have a route to the same link-local network.
            let request = RouteNetlinkMessage::NewRoute(route.clone());
            netlink.tell(request, NLM_F_CREATE | NLM_F_APPEND)?;
            self.routes.push(route);
        }
        Ok(())
    }

    /// A route of the main table as it is in this one.
    fn copy(&self, mut route: RouteMessage) -> RouteMessage {
        route.header.table = RouteHeader::RT_TABLE_UNSPEC;
        // The others tell of a state.
        route.header.flags &= RouteFlags::Onlink;
        let mut metrics = Vec::new();
        let by_number =
            (route.attributes.iter()).any(|attribute| matches!(attribute, RouteAttribute::NhId(_)));
        route.attributes.retain_mut(|attribute| match attribute {
            RouteAttribute::Metrics(all) => {
                metrics = std::mem::take(all);
                false
            }
            RouteAttribute::MultiPath(hops) => {
                for hop in hops {
                    hop.flags &= RouteNextHopFlags::Onlink;
                }
                !by_number
            }
            // What is known of a next hop by its number is not told again.
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::Oif(_) => {
                !by_number
            }
            RouteAttribute::Table(_) | RouteAttribute::CacheInfo(_) => false,
            _ => true,
        });
        metrics.retain(|metric| !matches!(metric, RouteMetric::InitCwnd(_)));
        metrics.push(RouteMetric::InitCwnd(self.packets));
        let own = [
            RouteAttribute::Table(self.mark),
            RouteAttribute::Metrics(metrics),
        ];
        route.attributes.extend(own);
        route
    }

    fn remove_routes(&mut self, netlink: &mut Netlink) {
        for route in self.routes.drain(..) {
            // Those of a device that has gone have gone with it.
            let _ = netlink.tell(RouteNetlinkMessage::DelRoute(route), 0);
        }
    }

    fn remove(&mut self, netlink: &mut Netlink) {
        for family in FAMILIES {
            let rule = RouteNetlinkMessage::DelRule(mark_rule(family, self.mark, PRIORITY));
            let _ = netlink.tell(rule, 0);
        }
        self.remove_routes(netlink);
    }
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}
