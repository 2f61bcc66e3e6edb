//! Whatever a file holds, it is read or refused with its line.

use proptest::prelude::*;
use tollgate_config::Config;

use super::ALL;

/// Lines as a careless or hostile hand might write them.
fn line() -> impl Strategy<Value = String> {
    let field = "name|key|algorithm|limit|window|zone|anchor|burst|queue|at_once|unit|over|cost|count|missing_key|methods|routes|allow|deny|reserve|critical|tiers|\
         advertise|shadow|metered|refund_dropped|trusted_proxies|trusted_hops|forwarded|on_failure|allow_for|instances|\
         [a-z\"\\\\]{0,6}";
    let value = prop_oneof![
        "-?[0-9_]{1,22}(\\.[0-9]{1,3})?",
        "\"[0-9]{0,25} ?(ns|us|ms|s|m|h|d|M|y|years|µs)?\"",
        "\"(client_ip|bearer|failures|forwarded|cf-connecting-ip|(cookie|query|path_param|header):[a-z{}é]{0,4})\"",
        "\"(peer_ip|route|path|global|header:[a-zA-Z -]{0,9}|fixed_window|token_bucket|day|week|month|UTC|Europe/Berlin|skip|deny|allow)\"",
        "\\[(\"GET\"|\"/\\{id\\}\"|\"(10|::)[0-9a-f.:/]{0,9}\"|[0-9]{1,6}|,){0,6}\\]",
        "\\{ ?(by = \"header:[a-z]{0,3}\"|[a-z]{1,3} = [0-9]{1,20}|header = \"[a-z ]{0,3}\"|value = \"\"|,){0,6} ?\\}",
        "\\[(\"path\"|\"header:a\"|,|3){0,12}\\]",
        "(true|false|\\{\\}|inf|nan|\"\"|'''|\\PC{0,12})",
    ];
    prop_oneof![
        8 => (field, value).prop_map(|(field, value)| format!("{field} = {value}")),
        2 => "(\\[\\[policy\\]\\]|\\[server\\]|\\[policy\\]|\\[\\[|#.{0,9})",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn no_likely_file_makes_it_panic(lines in prop::collection::vec(line(), 0..12)) {
        check(&lines.join("\n"))?;
        check(&format!("[[policy]]\n{}", lines.join("\n")))?;
    }

    #[test]
    fn no_cut_or_changed_file_makes_it_panic(from in 0..ALL.len(), to in 0..ALL.len(), put in ".{0,3}") {
        let (from, to) = (from.min(to), from.max(to));
        check(&format!("{}{put}{}", &ALL[..from], &ALL[to..]))?;
    }
}

fn check(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = Config::from_toml(text) {
        let told = format!("{error:#}");
        prop_assert!(error.is_invalid());
        prop_assert!(told.starts_with("line "), "{told}");
        prop_assert!(!told.chars().any(char::is_control), "{told:?}");
    }
    Ok(())
}
