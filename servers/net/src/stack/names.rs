//! Addresses of names (DNS), and the machine's own address (DHCP).

use super::{refusal, Done, Net, Party, Stack, QUERIES};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::task::Waker;
use services::net::NAME;
use smoltcp::socket::{dhcpv4, dns};
use smoltcp::wire::{DnsQueryType, IpAddress, IpCidr};

/// The number of a query, among those of all sessions.
pub(crate) type Id = u64;

/// A query that has no answer yet.
struct Query {
    /// The party that asks.
    party: Party,
    handle: dns::QueryHandle,
    /// Wakes the client that waits for the answer.
    waker: Option<Waker>,
}

/// All queries, in the order in which they were begun.
#[derive(Default)]
pub(super) struct Queries {
    all: BTreeMap<Id, Query>,
    next: Id,
}

impl Queries {
    /// Whether there are queries.
    pub(super) fn are_some(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether a party may ask for a name. If there are as many queries as there may be, one is returned that is to be
    /// given up: the last one of the party with the most queries, if that party has more than the asking one will have.
    /// `QUERIES` if there is no such query.
    fn may_ask(&self, party: Party) -> Done<Option<Id>> {
        if self.all.len() < QUERIES {
            return Ok(None);
        }
        let mut counts: BTreeMap<Party, (usize, Id)> = BTreeMap::new();
        for (id, query) in &self.all {
            let (count, last) = counts.entry(query.party).or_default();
            (*count, *last) = (*count + 1, *id);
        }
        let own = counts.get(&party).map_or(0, |(count, _)| *count);
        let most = counts.into_values().max();
        let given_up = most.filter(|(count, _)| *count > own + 1);
        given_up.map(|(_, last)| Some(last)).ok_or(refusal::QUERIES)
    }
}

impl Stack {
    /// Takes the address, the router and the servers of names that a DHCP server has given. Addresses are checked,
    /// since the stack takes unicast ones only.
    pub(super) fn learn(&mut self) {
        let Some(dhcp) = self.dhcp else {
            return;
        };
        let event = match self.wire.sockets.get_mut::<dhcpv4::Socket<'_>>(dhcp).poll() {
            None => return,
            Some(dhcpv4::Event::Deconfigured) => None,
            Some(dhcpv4::Event::Configured(config)) => {
                Some((config.address, config.router, config.dns_servers))
            }
        };
        let link_local = |cidr: &&IpCidr| matches!(cidr, IpCidr::Ipv6(_));
        let addresses = self.wire.interface.ip_addrs().iter();
        let mut addresses: Vec<IpCidr> = addresses.filter(link_local).copied().collect();
        self.wire.interface.routes_mut().remove_default_ipv4_route();
        let mut servers: Vec<IpAddress> = Vec::new();
        if let Some((address, router, names)) = event {
            let is_fit =
                |address: Ipv4Addr| !address.is_loopback() && IpAddress::Ipv4(address).is_unicast();
            if is_fit(address.address()) {
                addresses.push(IpCidr::Ipv4(address));
            }
            if let Some(router) = router.filter(|router| is_fit(*router)) {
                let _ = self
                    .wire
                    .interface
                    .routes_mut()
                    .add_default_ipv4_route(router);
            }
            servers = names
                .into_iter()
                .filter(|server| is_fit(*server))
                .map(IpAddress::Ipv4)
                .collect();
        }
        self.set_addresses(&addresses);
        self.wire
            .sockets
            .get_mut::<dns::Socket<'_>>(self.dns)
            .update_servers(&servers);
        self.name_servers = servers;
    }

    /// Begins to ask for the addresses of a name, for a party: IPv6 if `six`, else IPv4.
    pub(crate) fn ask_name(&mut self, party: Party, name: &str, six: bool) -> Done<Id> {
        if name.len() > NAME || name.split('.').any(|part| part.len() > 63) {
            return Err(refusal::LONG_NAME);
        }
        if self.name_servers.is_empty() {
            return Err(refusal::NO_SERVER);
        }
        let given_up = self.queries.may_ask(party)?;
        (self.options.reserve)(1024).map_err(|_| refusal::MEMORY)?;
        let kind = match six {
            true => DnsQueryType::Aaaa,
            false => DnsQueryType::A,
        };
        let Net {
            interface, sockets, ..
        } = &mut self.wire;
        let dns = sockets.get_mut::<dns::Socket<'_>>(self.dns);
        let query = dns.start_query(interface.context(), name, kind);
        let handle = query.map_err(|_| refusal::BAD_NAME)?;
        if let Some(query) = given_up {
            let waker = self.end_query(query).and_then(|query| query.waker);
            waker.into_iter().for_each(Waker::wake);
        }
        let id = self.queries.next;
        self.queries.next += 1;
        let query = Query {
            party,
            handle,
            waker: None,
        };
        self.queries.all.insert(id, query);
        self.wire.changed = true;
        Ok(id)
    }

    /// The answer to a query, which is over then. `None` if there is none yet; the waker is woken when there is.
    pub(crate) fn name_answer(&mut self, id: Id, waker: &Waker) -> Option<Done<Vec<IpAddr>>> {
        let Some(query) = self.queries.all.get_mut(&id) else {
            // The query was given up for another party.
            return Some(Err(refusal::QUERIES));
        };
        let dns = self.wire.sockets.get_mut::<dns::Socket<'_>>(self.dns);
        let answer = match dns.get_query_result(query.handle) {
            Err(dns::GetQueryResultError::Pending) => {
                dns.register_query_waker(query.handle, waker);
                query.waker = Some(waker.clone());
                return None;
            }
            Ok(addresses) => Ok(addresses.into_iter().map(IpAddr::from).collect()),
            Err(dns::GetQueryResultError::Failed) => Err(refusal::NO_NAME),
        };
        self.queries.all.remove(&id);
        Some(answer)
    }

    /// Gives up a query whose answer nobody wants any more.
    pub(crate) fn forget_name(&mut self, id: Id) {
        self.end_query(id);
    }

    fn end_query(&mut self, id: Id) -> Option<Query> {
        let query = self.queries.all.remove(&id)?;
        let dns = self.wire.sockets.get_mut::<dns::Socket<'_>>(self.dns);
        dns.cancel_query(query.handle);
        Some(query)
    }
}
