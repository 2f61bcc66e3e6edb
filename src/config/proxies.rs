//! Which proxies are trusted to tell the client's address.

use toml::Spanned;

use super::document::{ServerTable, Texts};
use super::fault::Fault;
use super::header::header_name;
use super::values::Whole;
use crate::http::key::{self, ClientIp};

/// No chain of proxies is read further.
const MOST_HOPS: u64 = 64;

pub(super) fn read_client(table: &ServerTable) -> Result<ClientIp, Fault> {
    let client = match (&table.trusted_proxies, &table.trusted_hops) {
        (Some(_), Some(hops)) => {
            let message = "trusted_hops and trusted_proxies exclude each other: leave one of them out";
            return Err(Fault::at(hops.span(), message));
        }
        (Some(proxies), None) => trust_proxies(proxies)?,
        (None, Some(hops)) => trust_hops(hops)?,
        (None, None) => return refuse_header(table.forwarded.as_ref()),
    };
    match &table.forwarded {
        Some(header) => read_from(client, header),
        None => Ok(client),
    }
}

fn trust_proxies(proxies: &Texts) -> Result<ClientIp, Fault> {
    for proxy in &proxies.get_ref().0 {
        if let Err(error) = key::client_ip().try_trusted_proxies([proxy.get_ref()]) {
            return Err(Fault::at(proxy.span(), error.to_string()));
        }
    }
    // Each of them was read.
    Ok(key::client_ip().trusted_proxies(proxies.get_ref().0.iter().map(Spanned::get_ref)))
}

fn trust_hops(given: &Spanned<Whole>) -> Result<ClientIp, Fault> {
    let Whole(number) = *given.get_ref();
    let hops = usize::try_from(number).ok().filter(|_| number <= MOST_HOPS);
    let client = hops.map(|hops| key::client_ip().trusted_hops(hops));
    client.ok_or_else(|| {
        let message =
            format!("trusted_hops {number} is not allowed: give how many proxies there are, 0 to {MOST_HOPS}");
        Fault::at(given.span(), message)
    })
}

fn read_from(client: ClientIp, given: &Spanned<String>) -> Result<ClientIp, Fault> {
    let header = header_name("forwarded", given.span(), given.get_ref())?;
    match header.as_str() {
        "x-forwarded-for" => Ok(client),
        "forwarded" => Ok(client.forwarded()),
        name => Ok(client.header(name)),
    }
}

/// Nobody's headers are believed.
fn refuse_header(forwarded: Option<&Spanned<String>>) -> Result<ClientIp, Fault> {
    let Some(header) = forwarded else { return Ok(key::client_ip()) };
    let message = "forwarded is believed of nobody: add trusted_proxies = [\"...\"] or trusted_hops = N";
    Err(Fault::at(header.span(), message))
}
