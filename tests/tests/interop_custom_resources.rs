//! Custom resources by the programs that people use: the real kubectl and the real Helm.
#![cfg(feature = "interop")]

use std::path::Path;

use anyhow::Result;
use podwire_tests::world::World;

const DEFINITION: &str = r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.replicas}
    - {name: Phase, type: string, jsonPath: .status.phase}
    schema: &schema
      openAPIV3Schema:
        type: object
        description: Something that there are many of.
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, minimum: 0, description: How many there are to be.}
              colour: {type: string, default: grey, enum: [grey, red]}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer}}}
          status: {type: object, properties: {phase: {type: string}, replicas: {type: integer}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    subresources: {status: {}}
    schema: *schema
"#;

fn widget(name: &str, spec: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// A world in which there are widgets.
fn with_widgets() -> Result<World> {
    let world = World::up()?;
    world.write("definition.yaml", DEFINITION)?;
    let definition = world.path("definition.yaml");
    world.says(
        &format!("kubectl create -f {}", definition.display()),
        "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created",
    )?;
    world.ok("kubectl wait --for=condition=Established crd/widgets.example.com --timeout=20s")?;
    Ok(world)
}

#[test]
fn kubectl_creates_explains_and_shows_custom_resources() -> Result<()> {
    let world = with_widgets()?;
    world.tells(
        "kubectl explain widget.spec.replicas",
        &["GROUP:      example.com", "KIND:       Widget", "VERSION:    v1", "How many there are to be."],
    )?;
    world
        .tells("kubectl explain wd --recursive", &["Something that there are many of.", "colour", "parts"])?;
    world.tells(
        "kubectl api-resources --api-group=example.com",
        &["widgets", "wd", "example.com/v1", "Widget"],
    )?;

    world.write("a.yaml", &widget("a", "{replicas: 2, parts: [{name: x, size: 1}]}"))?;
    let a = world.path("a.yaml").display().to_string();
    world.says(&format!("kubectl create -f {a}"), "widget.example.com/a created")?;
    world.says("kubectl get wd a -o jsonpath='{.spec.colour}'", "grey")?;
    let columns = "NAME SIZE PHASE";
    world.says("kubectl get widgets | head -n1 | tr -s ' ' | sed 's/ $//'", columns)?;
    world.says(
        "kubectl get wd --no-headers -o custom-columns=N:.metadata.name,R:.spec.replicas | tr -s ' '",
        "a 2",
    )?;
    world.tells("kubectl get all", &["widget.example.com/a"])?;
    world.tells("kubectl describe widget a", &["API Version:  example.com/v1", "Replicas:  2"])?;
    // Another version of the same, which is deprecated.
    world.tells(
        "kubectl get widgets.v1beta1.example.com a -o yaml 2>&1",
        &["example.com/v1beta1 Widget is deprecated", "apiVersion: example.com/v1beta1", "replicas: 2"],
    )?;

    world.write("bad.yaml", &widget("bad", "{replicas: -1, colour: blue}"))?;
    let bad = world.path("bad.yaml").display().to_string();
    world.fails(&format!("kubectl create -f {bad}"), 1, "The Widget \"bad\" is invalid")?;
    world.fails(&format!("kubectl create -f {bad}"), 1, "should be greater than or equal to 0")?;
    world.write("odd.yaml", &widget("odd", "{replicaz: 1}"))?;
    let odd = world.path("odd.yaml").display().to_string();
    world.fails(&format!("kubectl create -f {odd}"), 1, "unknown field \"spec.replicaz\"")?;
    world.ok("kubectl delete crd widgets.example.com --timeout=40s")?;
    // kubectl still knows it from before.
    world.fails("kubectl get wd", 1, "the server could not find the requested resource")?;
    world.down()
}

#[test]
fn kubectl_applies_scales_waits_for_and_deletes_custom_resources() -> Result<()> {
    let world = with_widgets()?;
    world.write("b.yaml", &widget("b", "{replicas: 2, parts: [{name: x, size: 1}]}"))?;
    world.write("other.yaml", &widget("b", "{parts: [{name: z, size: 2}]}"))?;
    world.write("clash.yaml", &widget("b", "{replicas: 7}"))?;
    let at = |name: &str| world.path(name).display().to_string();
    let applied = "widget.example.com/b serverside-applied";
    world.says(&format!("kubectl apply --server-side -f {}", at("b.yaml")), applied)?;
    // Parts have names and owners of their own.
    world.says(
        &format!("kubectl apply --server-side --field-manager=other -f {}", at("other.yaml")),
        applied,
    )?;
    world.says("kubectl get wd b -o jsonpath='{.spec.parts[*].name}'", "x z")?;
    world.fails(
        &format!("kubectl apply --server-side --field-manager=other -f {}", at("clash.yaml")),
        1,
        "conflict with \"kubectl\"",
    )?;
    let forced = format!(
        "kubectl apply --server-side --force-conflicts --field-manager=other -f {}",
        at("clash.yaml")
    );
    world.says(&forced, applied)?;
    world.says("kubectl get wd b -o jsonpath='{.spec.replicas} {.spec.parts[*].name}'", "7 x")?;

    world.says("kubectl scale widget b --replicas=5", "widget.example.com/b scaled")?;
    world.says("kubectl get widget b --subresource=scale -o jsonpath='{.spec.replicas}'", "5")?;
    world.fails(
        "kubectl scale widget b --current-replicas=4 --replicas=6",
        1,
        "Expected replicas to be 4, was 5",
    )?;

    let waiting = world.start("kubectl wait --for=jsonpath='{.status.phase}'=Done widget/b --timeout=30s")?;
    world.ok(
        "kubectl patch widget b --subresource=status --type=merge -p '{\"status\":{\"phase\":\"Done\"}}'",
    )?;
    waiting.until("widget.example.com/b condition met")?;
    // The status is not written by the door of the object.
    world.ok("kubectl patch widget b --type=merge -p '{\"status\":{\"phase\":\"Lost\"}}'")?;
    world.says("kubectl get wd b -o jsonpath='{.status.phase}'", "Done")?;

    world.tells("kubectl delete wd b", &["widget.example.com \"b\" deleted"])?;
    world.fails("kubectl get wd b", 1, "NotFound")?;
    world.down()
}

#[test]
fn helm_installs_a_chart_with_definitions_and_hooks() -> Result<()> {
    let world = World::up()?;
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/gadgets").display().to_string();
    world.tells(
        &format!("helm install shop {chart} --wait --timeout=60s"),
        &["STATUS: deployed", "REVISION: 1"],
    )?;
    world.says("kubectl get gg shop -o jsonpath='{.spec.size} {.spec.colour}'", "3 grey")?;
    // The pod after it has read what was made before it.
    world.says("kubectl logs shop-after", "1")?;
    world.says("kubectl get pod shop-after -o jsonpath='{.status.phase}'", "Succeeded")?;
    world.tells(
        &format!("helm upgrade shop {chart} --set size=5 --wait --timeout=60s"),
        &["STATUS: deployed", "REVISION: 2"],
    )?;
    world.says("kubectl get gg shop -o jsonpath='{.spec.size}'", "5")?;
    world.says("kubectl logs shop-after", "2")?;
    // What the schema forbids fails the release and leaves the object as it was.
    world.fails(
        &format!("helm upgrade shop {chart} --set size=0 --wait --timeout=60s"),
        1,
        "should be greater than or equal to 1",
    )?;
    world.says("kubectl get gg shop -o jsonpath='{.spec.size}'", "5")?;
    world.tells("helm uninstall shop --wait --timeout=60s", &["release \"shop\" uninstalled"])?;
    world.fails("kubectl get gg shop", 1, "NotFound")?;
    // Helm leaves definitions, and hooks that were not told to go.
    world.ok("kubectl get crd gadgets.shop.example.com")?;
    world.ok("kubectl delete pod/shop-after configmap/shop-before")?;
    world.down()
}
