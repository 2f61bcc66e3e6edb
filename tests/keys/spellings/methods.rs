//! HEAD runs the handlers of GET.

use http::Method;
use tollgate::{Policy, key};

use super::rig::{ONE, app, expect, file, method};

#[test]
fn a_policy_for_get_covers_head() {
    let in_file = file("methods = [\"GET\"]").expect("a policy");
    for policy in [Policy::new("reads", ONE).methods([Method::GET, Method::POST]), in_file] {
        let app = app(policy);
        expect(&app, method(Method::HEAD), 200);
        expect(&app, method(Method::HEAD), 429);
        expect(&app, method(Method::GET), 429);
        expect(&app, method(Method::PUT), 200);
    }
}

#[test]
fn a_policy_for_head_covers_head_only() {
    let app = app(Policy::new("heads", ONE).methods([Method::HEAD]));
    expect(&app, method(Method::HEAD), 200);
    expect(&app, method(Method::HEAD), 429);
    expect(&app, method(Method::GET), 200);
    expect(&app, method(Method::GET), 200);
}

#[test]
fn head_does_not_double_what_a_key_by_method_admits() {
    let app = app(Policy::new("method", ONE).key(key::method()));
    expect(&app, method(Method::GET), 200);
    expect(&app, method(Method::HEAD), 429);
    expect(&app, method(Method::POST), 200);
}
