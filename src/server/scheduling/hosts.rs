//! The host of a connection, for turns and shares between hosts. Never identifies a client: that is
//! done by certificates and tokens.

use std::fmt;
use std::net::IpAddr;

/// The origin of connections; of IPv6 the network, since a host has all its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Host(IpAddr);

impl Host {
    /// The host with this address.
    pub(crate) fn of(address: IpAddr) -> Host {
        Host(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Host;

    #[test]
    fn ipv6_network_counts_as_one_host() {
        let of = |text: &str| Host::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::7").to_string(), "2001:db8::");
    }
}
