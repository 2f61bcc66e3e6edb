//! `--explain` of the example server.

use http::StatusCode;

use super::harness::{ConfigFile, Server};

#[tokio::test]
async fn explain_shows_the_policies_of_a_path_only_with_the_flag() {
    let policy = |name: &str, options: &str| {
        format!("[[policy]]\nname = \"{name}\"\nkey = \"client_ip\"\nlimit = 2\nwindow = \"1h\"\n{options}\n")
    };
    let config = ConfigFile::new(
        &[
            policy("all", ""),
            policy("login", "routes = [\"/login\"]\nmethods = [\"POST\"]"),
            policy("status", "routes = [\"/status/{code}\"]\ncost = 2"),
        ]
        .concat(),
    );
    let server = Server::start(&["--explain", "--config", config.path()]);
    let quota = "2 per 3600s (token_bucket)";
    let line = |policy: &str, applies: &str, key: &str, cost: &str, why: &str| {
        format!("{policy:6}  {applies:7}  {key:12}  {cost:4}  {quota}  {why}\n")
    };
    let header = format!("policy  applies  {:12}  cost  {:26}  why\n", "key", "quota");
    let counted = |policy, cost| line(policy, "yes", "ip:127.0.0.1", cost, "-");
    let skipped = |policy, why: &str| line(policy, "no", "-", "-", why);
    for (query, login, status) in [
        (
            "path=/login&method=POST",
            counted("login", "1"),
            skipped("status", "its routes do not include /login, which matched"),
        ),
        (
            "path=/login",
            skipped("login", "its methods do not include GET"),
            skipped("status", "its routes do not include /login, which matched"),
        ),
        (
            "path=/status/418&method=POST",
            skipped("login", "its routes do not include /status/{code}, which matched"),
            counted("status", "2"),
        ),
        (
            "path=/nowhere%3Fa=b&method=POST",
            skipped("login", "it is for routes, and none has matched where the layer is"),
            skipped("status", "it is for routes, and none has matched where the layer is"),
        ),
    ] {
        let expected = [&header, &counted("all", "1"), &login, &status].map(String::as_str).concat();
        assert_eq!(server.get(&format!("/explain?{query}")).await, (StatusCode::OK, expected), "{query}");
    }
    for bad in ["path=login", "path=http://a/", "path=/a%20b", "path=/&method=a%20b", "method=GET"] {
        assert_eq!(server.get(&format!("/explain?{bad}")).await.0, 400, "{bad}");
    }
    let through_proxy = [("x-forwarded-for", "192.0.2.1")];
    assert_eq!(server.status("/explain?path=/login", &through_proxy).await, 403);
    for expected in [200, 200, 429] {
        assert_eq!(server.status("/", &[]).await, expected, "nothing was taken");
    }
    let without = Server::start(&["--config", config.path()]);
    assert_eq!(without.get("/explain?path=/login").await.0, 404);
}
