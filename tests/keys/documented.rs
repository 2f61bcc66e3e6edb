//! The table of the text of keys in docs/names.md.

use http::request::Parts;
use tollgate::key;
use tollgate::{Key, Policy};

use super::rig::policy;

const NAMES: &str = include_str!("../../docs/names.md");

/// The policy with the key that a row names.
fn by(code: &str) -> Policy {
    match code {
        "client_ip()" => policy(key::client_ip()),
        "peer_ip()" => policy(key::peer_ip()),
        r#"header("x-tenant").plain()"# => policy(key::header("x-tenant").plain()),
        r#"header("x-api-key")"# => policy(key::header("x-api-key")),
        r#"cookie("theme").plain()"# => policy(key::cookie("theme").plain()),
        r#"cookie("session")"# => policy(key::cookie("session")),
        "bearer()" => policy(key::bearer()),
        "basic_user().plain()" => policy(key::basic_user().plain()),
        "basic_user()" => policy(key::basic_user()),
        r#"query("tenant")"# => policy(key::query("tenant")),
        r#"path_param("id")"# => policy(key::path_param("id")),
        "path()" => policy(key::path()),
        "host()" => policy(key::host()),
        "method()" => policy(key::method()),
        "route()" => policy(key::route()),
        "global()" => policy(key::global()),
        "(client_ip(), method())" => policy((key::client_ip(), key::method())),
        r#"Key::new("user", "ada")"# => policy(|_: &Parts| Key::new("user", "ada")),
        r#""ada""# => policy(|_: &Parts| "ada"),
        other => panic!("the table has a key that this test does not know: {other}"),
    }
}

/// What stands in backticks.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_the_text_of_keys_has_what_key_of_makes() {
    let table = NAMES.split("| key | `key_of` | text |").nth(1).expect("the table is there");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let mut checked = 0;
    for row in &rows {
        let row = row.replace(r"\|", "\u{1}");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, keys, values, text, _] = cells[..] else { panic!("three cells: {row}") };
        let text = code(text)[0].replace('\u{1}', "|");
        let values: Vec<&str> = code(values).into_iter().filter(|value| *value != "key_of_parts").collect();
        for key in code(keys) {
            checked += 1;
            let made = match values[..] {
                ["Key::new"] => {
                    assert!(by(key).key_of("ada").is_err(), "{row}");
                    continue;
                }
                [r#""""#] => by(key).key_of(""),
                ref values => by(key).key_of_parts(values),
            };
            let hash = Key::hashed("of", values[0]).to_string().replace("of:#", "");
            assert_eq!(made.expect("a request has it").as_str(), text.replace("HASH", &hash), "{row}");
        }
    }
    assert_eq!(checked, 21, "{rows:#?}");
}
