//! The versions of other crates, as the lock files have them.

const LOCK: &str = include_str!("../../Cargo.lock");
/// That of the crate which cannot be built with the others.
const LOCK_APART: &str = include_str!("../tower-rate-limiter/Cargo.lock");

/// The crates that are measured beside ours.
const PEERS: [&str; 4] = ["tower_governor", "tower-rate-limit-redis", "tower-rate-limiter", "tower-redis-cell"];

/// Adds its version to the name of a crate that a title begins with.
pub(crate) fn titled(title: &str) -> String {
    let name = title.split([',', ' ']).next().unwrap_or_default();
    if !PEERS.contains(&name) {
        return title.to_owned();
    }
    let version = version(LOCK, name).or_else(|| version(LOCK_APART, name)).expect("the lock files have all peers");
    format!("{name} {version}{}", &title[name.len()..])
}

fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("\nname = \"{name}\"\nversion = \""))?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::{LOCK, PEERS, titled, version};

    #[test]
    fn a_title_has_the_version_of_the_crate_it_begins_with() {
        let version = version(LOCK, "tower_governor").unwrap_or_default();
        assert_eq!(titled("tower_governor, its headers"), format!("tower_governor {version}, its headers"));
        assert_eq!(titled("tollgate, memory"), "tollgate, memory");
        for peer in PEERS {
            assert!(titled(peer).contains(" 0.") || titled(peer).contains(" 1."), "{}", titled(peer));
        }
    }
}
