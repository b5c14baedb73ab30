//! Custom resources beside kube-apiserver: how soon a definition serves, what many of them cost, and what rules in CEL cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{
    api::{
        self, Round, Server,
        client::{Connection, Endpoint},
    },
    measure,
    report::{self, Row},
};

/// Definitions whose first object is waited for.
const FIRSTS: usize = 20;
/// Objects created for each rate.
const OBJECTS: usize = 8_000;
/// Rules of the definition with rules.
const RULES: usize = 20;
/// Definitions of the corpus, with the size of each.
const CORPUS: [(usize, usize); 2] = [(480, 20_000), (20, 600_000)];
const GROUP: &str = "bench.podwire.dev";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Measures both servers and prints the table.
pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        println!("ours ...");
        let ours = Figures::of(Server::ours().await?).await?;
        let theirs = if api::peers_are_built() {
            println!("upstream ...");
            Some(Figures::of(Server::upstream().await?).await?)
        } else {
            println!("(the peers are not built: `make peers` puts upstream beside)");
            None
        };
        print(&ours, theirs.as_ref());
        Ok(())
    })
}

fn print(ours: &Figures, theirs: Option<&Figures>) {
    let less = |what: &str, unit: &'static str, read: fn(&Figures) -> f64, target: Option<f64>| {
        Row::new(what, unit, read(ours), theirs.map(read), target)
    };
    let more = |what: &str, read: fn(&Figures) -> f64, target: Option<f64>| {
        Row::rate(what, "/s", read(ours), theirs.map(read), target)
    };
    let mut rows = vec![
        less("definition POST to first object, p50", "ms", |f| f.first, Some(20.0)),
        more("creates of a custom resource, 64 connections", |f| f.plain.rate, None),
        less("  server CPU each", "ms", |f| f.plain.cpu, None),
        more("the same with 20 rules in CEL", |f| f.ruled.rate, Some(8_000.0)),
        less("  server CPU each", "ms", |f| f.ruled.cpu, None),
        less("a policy with 5 expressions, server CPU more each", "us", Figures::policy, Some(50.0)),
        less("500 definitions posted and served", "s", |f| f.corpus.took, None),
        less("  memory for each byte of them", "x", |f| f.corpus.memory, Some(3.0)),
    ];
    if let Some(ready) = ours.corpus.ready {
        rows.push(Row::new("  started again with them", "s", ready, None, Some(1.0)));
    }
    report::print(&rows);
}

/// The figures of one server.
struct Figures {
    first: f64,
    plain: Round,
    ruled: Round,
    /// With an admission policy.
    judged: Round,
    corpus: Corpus,
}

impl Figures {
    /// Microseconds that a policy takes of the server for each request.
    fn policy(&self) -> f64 {
        (self.judged.cpu - self.plain.cpu) * 1_000.0
    }

    async fn of(mut server: Server) -> Result<Figures> {
        api::namespace(&server.endpoint, "extensions").await?;
        println!("  first objects ...");
        let first = first_objects(&server.endpoint).await?;
        println!("  creates ...");
        let plain = creates(&server, "plain", &schema_of(RULES, false)).await?;
        let ruled = creates(&server, "ruled", &schema_of(RULES, true)).await?;
        println!("  a policy ...");
        let judged = judged(&server).await?;
        println!("  many definitions ...");
        let corpus = Corpus::of(&mut server).await?;
        Ok(Figures { first, plain, ruled, judged, corpus })
    }
}

/// The median time from the POST of a definition until an object of it is created.
async fn first_objects(endpoint: &Endpoint) -> Result<f64> {
    let mut connection = endpoint.connect().await?;
    let mut samples = Vec::with_capacity(FIRSTS);
    for number in 0..FIRSTS {
        let name = format!("first{number}");
        let definition = endpoint.request("POST", DEFINITIONS, &definition(&name, &schema_of(3, false)));
        let begun = Instant::now();
        connection.ask(&definition).await?;
        served(endpoint, &mut connection, &name, 3).await?;
        samples.push(begun.elapsed());
    }
    Ok(api::millis(measure::percentile(&samples, 50)))
}

/// Asks until an object of a definition could be created.
async fn served(endpoint: &Endpoint, connection: &mut Connection, name: &str, fields: usize) -> Result<()> {
    let request = object(endpoint, name, 0, fields);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match connection.ask(&request).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("no object of {name} can be created"));
            }
            // kube-apiserver serves a definition seconds after it has said yes.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                *connection = endpoint.connect().await?;
            }
        }
    }
}

async fn creates(server: &Server, name: &str, schema: &str) -> Result<Round> {
    let endpoint = &server.endpoint;
    let mut connection = endpoint.connect().await?;
    connection.ask(&endpoint.request("POST", DEFINITIONS, &definition(name, schema))).await?;
    served(endpoint, &mut connection, name, RULES).await?;
    api::round(server, 64, OBJECTS, |number| object(endpoint, name, number + 1, RULES)).await
}

/// Creates as the plain ones are, with a policy of five expressions in force.
async fn judged(server: &Server) -> Result<Round> {
    let (endpoint, name) = (&server.endpoint, "judged");
    let mut connection = endpoint.connect().await?;
    let rules: Vec<String> = (0..5)
        .map(|number| {
            format!(
                r#"{{"expression":"object.spec.f{number}.startsWith('v') && object.spec.f{number}.size() <= variables.most"}}"#
            )
        })
        .collect();
    let policy = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"matchConstraints":{{"resourceRules":[{{"operations":["CREATE"],"apiGroups":["{GROUP}"],"apiVersions":["v1"],"resources":["{name}s"]}}]}},"variables":[{{"name":"most","expression":"40"}}],"validations":[{}]}}}}"#,
        rules.join(",")
    );
    let binding = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"policyName":"{name}","validationActions":["Deny"]}}}}"#
    );
    for (resource, body) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        connection.ask(&endpoint.request("POST", &path, &body)).await?;
    }
    // kube-apiserver takes a policy up a while after it has said yes.
    tokio::time::sleep(Duration::from_secs(3)).await;
    creates(server, name, &schema_of(RULES, false)).await
}

/// What many definitions cost.
struct Corpus {
    /// Seconds until the last of them served.
    took: f64,
    /// Bytes of memory for a stored byte.
    memory: f64,
    /// Seconds that a server needs to come up with them, where it can be started again.
    ready: Option<f64>,
}

impl Corpus {
    async fn of(server: &mut Server) -> Result<Corpus> {
        // What the rounds before left is given back meanwhile.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = server.pss()?;
        let (mut stored, mut last) = (0, String::new());
        let begun = Instant::now();
        let mut connection = server.endpoint.connect().await?;
        for (count, size) in CORPUS {
            for number in 0..count {
                last = format!("corpus{size}x{number}");
                let body = definition(&last, &schema_of_size(size));
                stored += body.len();
                connection.ask(&server.endpoint.request("POST", DEFINITIONS, &body)).await?;
            }
        }
        served(&server.endpoint, &mut connection, &last, 0).await?;
        let took = begun.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let memory = (server.pss()? - before) * 1e6 / stored as f64;
        let ready = server.start_again().await?.map(|time| time.as_secs_f64());
        Ok(Corpus { took, memory, ready })
    }
}

fn definition(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{name}s.{GROUP}"}},"spec":{{"group":"{GROUP}","scope":"Namespaced","names":{{"plural":"{name}s","singular":"{name}","kind":"K{name}"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{spec}}}}}}}}}]}}}}"#
    )
}

/// The schema of a specification with so many texts, each with a rule if they are wanted.
fn schema_of(fields: usize, rules: bool) -> String {
    let properties: Vec<String> =
        (0..fields).map(|number| format!(r#""f{number}":{{"type":"string","maxLength":64}}"#)).collect();
    let rule = |number: usize| {
        format!(
            r#"{{"rule":"self.f{number}.startsWith('v') && self.f{number}.size() <= 40","message":"f{number} is not well"}}"#
        )
    };
    let rules: Vec<String> = (0..if rules { fields } else { 0 }).map(rule).collect();
    let rules = if rules.is_empty() {
        String::new()
    } else {
        format!(r#","x-kubernetes-validations":[{}]"#, rules.join(","))
    };
    let required: Vec<String> = (0..fields).map(|number| format!(r#""f{number}""#)).collect();
    format!(
        r#"{{"type":"object","required":[{}],"properties":{{{}}}{rules}}}"#,
        required.join(","),
        properties.join(",")
    )
}

/// A schema of about this many bytes, shaped like those that operators bring: objects in objects, each field described.
fn schema_of_size(size: usize) -> String {
    let words = "What this field is for, in the words that somebody who writes a manifest would look for.";
    let mut objects = Vec::new();
    let mut length = 0;
    while length < size {
        let fields: Vec<String> = (0..10)
            .map(|number| {
                format!(r#""field{number}":{{"type":"string","description":"{words}","maxLength":253}}"#)
            })
            .collect();
        let object = format!(
            r#""object{}":{{"type":"object","description":"{words}","properties":{{{}}}}}"#,
            objects.len(),
            fields.join(",")
        );
        length += object.len() + 1;
        objects.push(object);
    }
    format!(r#"{{"type":"object","properties":{{{}}}}}"#, objects.join(","))
}

fn object(endpoint: &Endpoint, name: &str, number: usize, fields: usize) -> Vec<u8> {
    let fields: Vec<String> =
        (0..fields).map(|field| format!(r#""f{field}":"v-{number}-{field}""#)).collect();
    let body = format!(
        r#"{{"apiVersion":"{GROUP}/v1","kind":"K{name}","metadata":{{"name":"o{number}"}},"spec":{{{}}}}}"#,
        fields.join(",")
    );
    endpoint.request("POST", &format!("/apis/{GROUP}/v1/namespaces/extensions/{name}s"), &body)
}
