//! Query parameters, as axum's `Query` and others read them.

use std::collections::HashMap;

use axum::extract::Query;
use http::request::Parts;
use tollgate::key;
use tollgate::policy::AccessList;

use super::rig::{expect, get, policy, same, service, shared};

/// The parameter as a handler gets it.
fn map(parts: &Parts) -> Option<String> {
    let Query(mut map) = Query::<HashMap<String, String>>::try_from_uri(&parts.uri).expect("a map takes all");
    map.remove("k")
}

/// The first of several.
fn first(parts: &Parts) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).expect("a list takes all");
    pairs.into_iter().find(|(name, _)| name == "k").map(|(_, value)| value)
}

/// The first, where `;` separates parameters too.
fn by_semicolons(parts: &Parts) -> Option<String> {
    let mut pairs = parts.uri.query()?.split(['&', ';']);
    pairs.find_map(|pair| pair.strip_prefix("k=")).map(str::to_owned)
}

#[test]
fn a_parameter_made_up_before_the_one_the_application_takes_starts_no_counter() {
    shared(key::query("k"), map, get("/?k=REAL"), |n| get(&format!("/?k=junk{n}&k=REAL")));
}

#[test]
fn a_parameter_made_up_after_the_one_the_application_takes_starts_no_counter() {
    shared(key::query("k"), first, get("/?k=REAL"), |n| get(&format!("/?k=REAL&k=junk{n}")));
}

#[test]
fn a_percent_encoded_parameter_is_the_same_client() {
    let names = ["/?k=%52EAL", "/?%6b=REAL", "/x?a=b&%6B=R%45AL", "/?k=REAL&k=%52EAL"];
    same(key::query("k"), map, get("/?k=REAL"), names.map(get));
}

#[test]
fn semicolons_start_no_counter_where_they_separate_parameters() {
    shared(key::query("k"), by_semicolons, get("/?k=REAL"), |n| get(&format!("/?k=REAL;x={n}")));
}

#[test]
fn semicolons_hide_no_parameter_where_they_separate_them() {
    shared(key::query("k"), by_semicolons, get("/?k=REAL"), |n| get(&format!("/?x={n};k=REAL")));
}

#[test]
fn a_denied_value_is_refused_in_whatever_way_it_is_written() {
    let service = service(policy(key::query("k")).deny(AccessList::parse(["stolen"]).expect("a value")));
    expect(&service, ["/?k=stolen", "/?k=%73tolen"].map(|name| (get(name), 403)));
    expect(&service, ["/?k=junk&k=stolen", "/?k=stolen&k=junk", "/?x;k=stolen"].map(|name| (get(name), 400)));
    expect(&service, [(get("/?k=another"), 200)]);
}
