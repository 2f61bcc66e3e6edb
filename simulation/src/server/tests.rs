//! What happens to a node that no real server is asked about.

use super::{Node, Reply, Session, Vm};

const SCRIPT: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 'done'";

/// Asks something at 5 s after the epoch.
fn ask(node: &mut Node, words: &[&str]) -> Reply {
    let mut session = Session::new(node);
    node.execute(&mut session, words, 5_000_000)
}

/// A node that has run a script, and the hash of that.
fn node() -> (Node, String) {
    let mut node = Node::new(Vm::new());
    let Reply::Bulk(hash) = ask(&mut node, &["SCRIPT", "LOAD", SCRIPT]) else { panic!("it is loaded") };
    let hash = String::from_utf8(hash).unwrap();
    assert_eq!(run(&mut node, &hash), Reply::text("done"));
    (node, hash)
}

fn run(node: &mut Node, hash: &str) -> Reply {
    ask(node, &["EVALSHA", hash, "1", "key", "value", "100"])
}

fn has_no_script(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOSCRIPT"))
}

#[test]
fn a_node_may_run_in_any_thread() {
    fn is_send<T: Send>() {}
    is_send::<Node>();
    is_send::<Session>();
}

#[test]
fn a_call_is_told_once_with_what_it_came_to() {
    let (mut node, hash) = node();
    let calls = node.take_calls();
    assert_eq!((calls.len(), calls[0].at_us), (1, 5_000_000));
    assert_eq!((&*calls[0].keys[0], &*calls[0].args[1], &*calls[0].reply), (&b"key"[..], &b"100"[..], &b"done"[..]));
    assert!(node.take_calls().is_empty());
    node.fault.out_of_memory = true;
    assert!(run(&mut node, &hash).is_error());
    assert!(node.take_calls().is_empty());
}

#[test]
fn a_restart_may_lose_keys_and_loses_scripts() {
    let (mut node, hash) = node();
    node.restart_keeping_data();
    assert!(has_no_script(&run(&mut node, &hash)));
    assert_eq!(ask(&mut node, &["GET", "key"]), Reply::text("value"));
    ask(&mut node, &["SCRIPT", "LOAD", SCRIPT]);
    node.clear();
    assert!(has_no_script(&run(&mut node, &hash)));
    assert_eq!((ask(&mut node, &["GET", "key"]), node.keys().count()), (Reply::Nil, 0));
}

#[test]
fn an_evicted_key_is_gone() {
    let (mut node, _) = node();
    assert!(node.forget(b"key"));
    assert!(!node.forget(b"key"));
    assert_eq!(ask(&mut node, &["GET", "key"]), Reply::Nil);
}

#[test]
fn a_key_is_there_until_it_is_said_to_be_gone() {
    let (mut node, _) = node();
    let gone_us = node.keys().next().and_then(|(_, gone)| gone).unwrap();
    let mut session = Session::new(&node);
    assert_eq!(node.execute(&mut session, &["GET", "key"], gone_us - 1), Reply::text("value"));
    assert_eq!(node.execute(&mut session, &["GET", "key"], gone_us), Reply::Nil);
}

#[test]
fn an_interpreter_is_used_again_but_no_node_knows_scripts_of_another() {
    let (node, hash) = node();
    let mut next = Node::new(node.into_vm());
    assert!(has_no_script(&run(&mut next, &hash)));
    ask(&mut next, &["SCRIPT", "LOAD", SCRIPT]);
    assert_eq!(run(&mut next, &hash), Reply::text("done"));
}
