//! Any text as a registry's `hosts.toml`, and any bytes as docker's `config.json`: only places that can be asked come out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_image::hostile;

const HOST: &str = "r.example:5000";

fuzz_target!(init: {
    let deep = format!("host = {}1{}", "[".repeat(400), "]".repeat(400));
    let dotted = format!("[host.{}]\n", "a.".repeat(400) + "b");
    podwire_fuzz::seeds(&[
        r#"server = "https://r.example"
[host."http://127.0.0.1:5000"]
  capabilities = ["pull", "resolve"]
  skip_verify = true
[host."https://proxy.example/q/prefix"]
  override_path = true
  ca = ["own.crt", "/etc/other.crt"]
  [host."https://proxy.example/q/prefix".header]
    x-key = ["a", "b"]
"#,
        r#"{"auths":{"r.example:5000":{"auth":"dTpw"},"https://index.docker.io/v1/":{"identitytoken":"t"}}}"#,
        "[host.\"m.example/q\"]\noverride_path = true\n",
        &deep,
        &dotted,
    ]);
}, |text: &str| {
    hostile::has_credentials(text.as_bytes(), HOST);
    let folder = podwire_fuzz::folder();
    let own = folder.path().join(HOST);
    std::fs::create_dir(&own).expect("a folder");
    std::fs::write(own.join("hosts.toml"), text).expect("the file can be written");
    let Ok(places) = hostile::places(folder.path(), HOST) else { return };
    let settings = toml::Value::Table(text.parse().expect("settings are TOML"));
    let may_pull = |settings: &toml::Value| {
        let named = settings.get("capabilities").and_then(|list| list.as_array());
        named.is_none_or(|list| list.iter().any(|one| one.as_str() == Some("pull")))
    };
    let mirrors = settings.get("host").and_then(|hosts| hosts.as_table()).into_iter().flatten();
    let wanted = mirrors.map(|(_, mirror)| mirror).chain([&settings]).filter(|one| may_pull(one)).count();
    assert_eq!(places.len(), wanted, "every place that may be pulled from is asked, and no other");
    for place in places {
        let url = format!("{}/a/b/manifests/latest?ns={HOST}", place.url);
        let uri: http::Uri = url.parse().unwrap_or_else(|error| panic!("{url:?}: {error}"));
        assert!(matches!(uri.scheme_str(), Some("http" | "https")), "{url:?}");
        assert!(uri.path().ends_with("/a/b/manifests/latest"), "{url:?} asks for {:?}", uri.path());
        for file in &place.ca_files {
            let said = file.strip_prefix(&own).unwrap_or(file).to_str().expect("text");
            assert!(file.starts_with(&own) || file.is_absolute(), "{said:?} is looked up elsewhere");
        }
        let size: usize = place.headers.iter().map(|(_, value)| value.len()).sum();
        assert!(size <= text.len(), "more headers than were written");
    }
});
