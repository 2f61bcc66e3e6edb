//! `--explain` of the example server.

use super::harness::{ConfigFile, Server};

#[tokio::test]
async fn explain_shows_the_policies_of_a_path_only_with_the_flag() {
    let policy = |name: &str, options: &str| {
        format!("[[policy]]\nname = \"{name}\"\nkey = \"client_ip\"\nlimit = 2\nwindow = \"1h\"\n{options}\n")
    };
    let policies = [
        policy("all", ""),
        policy("login", "routes = [\"/login\"]\nmethods = [\"POST\"]"),
        policy("status", "routes = [\"/status/{code}\"]\ncost = 2"),
    ];
    let config = ConfigFile::new(&policies.concat());
    let server = Server::start(&["--explain", "--config", config.path()]);
    let quota = "2 per 3600s (token_bucket)";
    let line = |policy: &str, applies: &str, key: &str, cost: &str, quota: &str, why: &str| {
        format!("{policy:6}  {applies:7}  {key:12}  {cost:4}  {quota:26}  {why}\n")
    };
    let header = line("policy", "applies", "key", "cost", "quota", "why");
    let counted = |policy, cost| line(policy, "yes", "ip:127.0.0.1", cost, quota, "-");
    let skipped = |policy, why: &str| line(policy, "no", "-", "-", quota, why);
    let (others, nowhere) = ("its routes do not include", "it is for routes, and none has matched where the layer is");
    let other_login = skipped("login", &format!("{others} /status/{{code}}, which matched"));
    let other_status = || skipped("status", &format!("{others} /login, which matched"));
    for (query, login, status) in [
        ("path=/login&method=POST", counted("login", "1"), other_status()),
        ("path=/login", skipped("login", "its methods do not include GET"), other_status()),
        ("path=/status/418&method=POST", other_login, counted("status", "2")),
        ("path=/nowhere%3Fa=b&method=POST", skipped("login", nowhere), skipped("status", nowhere)),
    ] {
        let expected = [&header, &counted("all", "1"), &login, &status].map(String::as_str).concat();
        let (code, text) = server.get(&format!("/explain?{query}")).await;
        assert_eq!((code.as_u16(), text), (200, expected), "{query}");
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
