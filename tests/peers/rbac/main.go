// Prints generated cases of "do these rules cover those" with upstream's own answers, one JSON object per line.
//
// The lines are kept in control/apiserver/src/authz/rule/covers.jsonl, where our own answers are compared with them:
//
//	cd tests/peers/rbac && go run . > ../../../control/apiserver/src/authz/rule/covers.jsonl
package main

import (
	"encoding/json"
	"math/rand"
	"os"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Each list is short, so that rules meet.
var (
	verbs     = []string{"get", "list", "*", "bind"}
	groups    = []string{"", "apps", "*"}
	resources = []string{"pods", "pods/log", "*/log", "*", "pods/*", "deployments/scale", "*/scale"}
	names     = []string{"a", "b"}
	urls      = []string{"/healthz", "/api", "/api/*", "*", "/apis/apps*"}
)

type line struct {
	Held    []rbac.PolicyRule `json:"held"`
	Wanted  []rbac.PolicyRule `json:"wanted"`
	Missing []rbac.PolicyRule `json:"missing"`
}

func some(dice *rand.Rand, from []string, most int) []string {
	out := []string{}
	for n := 1 + dice.Intn(most); n > 0; n-- {
		out = append(out, from[dice.Intn(len(from))])
	}
	return out
}

func rule(dice *rand.Rand) rbac.PolicyRule {
	if dice.Intn(4) == 0 {
		return rbac.PolicyRule{Verbs: some(dice, verbs, 2), NonResourceURLs: some(dice, urls, 2)}
	}
	out := rbac.PolicyRule{Verbs: some(dice, verbs, 2), APIGroups: some(dice, groups, 2), Resources: some(dice, resources, 3)}
	if dice.Intn(3) == 0 {
		out.ResourceNames = some(dice, names, 2)
	}
	return out
}

func main() {
	dice := rand.New(rand.NewSource(36))
	out := json.NewEncoder(os.Stdout)
	for n := 0; n < 120; n++ {
		var next line
		for n := dice.Intn(4); n >= 0; n-- {
			next.Held = append(next.Held, rule(dice))
		}
		for n := dice.Intn(2); n >= 0; n-- {
			next.Wanted = append(next.Wanted, rule(dice))
		}
		_, next.Missing = validation.Covers(next.Held, next.Wanted)
		if err := out.Encode(next); err != nil {
			panic(err)
		}
	}
}
