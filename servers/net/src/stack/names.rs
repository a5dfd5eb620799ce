//! Names that somebody is asked for, and what the network says of itself.

use super::{refusal, Done, Net, Stack, QUERIES};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::task::Waker;
use services::net::NAME;
use smoltcp::socket::{dhcpv4, dns};
use smoltcp::wire::{DnsQueryType, IpAddress, IpCidr};

impl Stack {
    /// Takes the address that others say the machine has. What they say is checked: the stack takes no other.
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
        self.knows_names = !servers.is_empty();
        self.wire
            .sockets
            .get_mut::<dns::Socket<'_>>(self.dns)
            .update_servers(&servers);
    }

    /// Begins to ask for the addresses of a name.
    pub(crate) fn ask_name(&mut self, name: &str, six: bool) -> Done<dns::QueryHandle> {
        if name.len() > NAME || name.split('.').any(|part| part.len() > 63) {
            return Err(refusal::LONG_NAME);
        }
        if !self.knows_names {
            return Err(refusal::NO_SERVER);
        }
        if self.queries >= QUERIES {
            return Err(refusal::QUERIES);
        }
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
        let query = query.map_err(|_| refusal::BAD_NAME)?;
        self.queries += 1;
        self.changed = true;
        Ok(query)
    }

    /// The addresses, when they are there; the query is over then.
    pub(crate) fn name_answer(
        &mut self,
        query: dns::QueryHandle,
        waker: &Waker,
    ) -> Option<Done<Vec<IpAddr>>> {
        let dns = self.wire.sockets.get_mut::<dns::Socket<'_>>(self.dns);
        match dns.get_query_result(query) {
            Err(dns::GetQueryResultError::Pending) => {
                dns.register_query_waker(query, waker);
                None
            }
            Ok(addresses) => {
                self.queries -= 1;
                Some(Ok(addresses.into_iter().map(IpAddr::from).collect()))
            }
            Err(dns::GetQueryResultError::Failed) => {
                self.queries -= 1;
                Some(Err(refusal::NO_NAME))
            }
        }
    }

    /// Nobody wants the answer any more.
    pub(crate) fn forget_name(&mut self, query: dns::QueryHandle) {
        let dns = self.wire.sockets.get_mut::<dns::Socket<'_>>(self.dns);
        dns.cancel_query(query);
        self.queries -= 1;
    }
}
