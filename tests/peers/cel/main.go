// Answers questions about expressions with upstream's own CEL: one JSON object per line in, one per line out.
//
// The questions are made by base/cel/tests/upstream/cases.rs, where our own answers are compared with these.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// question is an expression, where it stands, and what its variables are.
type question struct {
	// Env is `plain` (x and y of any type), `schema` (self and oldSelf, or an optional oldSelf), `device`, or
	// `authorizer`.
	Env    string          `json:"env"`
	Expr   string          `json:"expr"`
	X      any             `json:"x"`
	Y      any             `json:"y"`
	Schema json.RawMessage `json:"schema"`
	Root   bool            `json:"root"`
	Self   any             `json:"self"`
	Old    any             `json:"old"`
	Device *device         `json:"device"`
}

type device struct {
	Driver   string                                                    `json:"driver"`
	Multiple *bool                                                     `json:"allowMultipleAllocations"`
	Attrs    map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

type answer map[string]any

// environments are kept by what makes them, as making one takes long.
var environments = map[string]*cel.Env{}

// sizes tells what a schema bounds.
type sizes struct {
	roots map[string]*apiservercel.DeclType
}

func (s *sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 {
		return nil
	}
	node := s.roots[path[0]]
	if node == nil {
		return nil
	}
	for _, name := range path[1:] {
		switch name {
		case "@items", "@values":
			node = node.ElemType
		case "@keys":
			node = node.KeyType
		default:
			field, ok := node.Fields[name]
			if !ok {
				return nil
			}
			node = field.Type
		}
		if node == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(node.MaxElements)}
}

func (s *sizes) EstimateCallCost(function, overloadID string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	return nil
}

// value is what an expression came to, in a form that both sides print the same.
func value(val ref.Val) any {
	switch v := val.(type) {
	case types.Null:
		return nil
	case types.Bool:
		return bool(v)
	case types.Int:
		return answer{"int": fmt.Sprint(int64(v))}
	case types.Uint:
		return answer{"uint": fmt.Sprint(uint64(v))}
	case types.Double:
		if math.IsNaN(float64(v)) {
			return answer{"double": "nan"}
		}
		return answer{"double": fmt.Sprintf("%016x", math.Float64bits(float64(v)))}
	case types.String:
		return string(v)
	case types.Bytes:
		return answer{"bytes": hex.EncodeToString(v)}
	case types.Timestamp:
		return answer{"timestamp": string(v.ConvertToType(types.StringType).(types.String))}
	case types.Duration:
		return answer{"duration": fmt.Sprint(int64(v.Duration))}
	case *types.Optional:
		if !v.HasValue() {
			return answer{"optional": nil}
		}
		return answer{"optional": []any{value(v.GetValue())}}
	case *types.Type:
		return answer{"type": v.TypeName()}
	case apiservercel.Quantity:
		return answer{"quantity": v.Quantity.String()}
	case *apiservercel.Quantity:
		return answer{"quantity": v.Quantity.String()}
	case apiservercel.URL:
		return answer{"url": v.URL.String()}
	case apiservercel.IP:
		return answer{"ip": v.Addr.String()}
	case apiservercel.CIDR:
		return answer{"cidr": v.Prefix.String()}
	case apiservercel.Semver:
		return answer{"semver": v.Version.String()}
	case *apiservercel.Format:
		return answer{"format": v.Name}
	case apiservercel.Format:
		return answer{"format": v.Name}
	case traits.Mapper:
		entries := [][2]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			entries = append(entries, [2]any{value(key), value(v.Get(key))})
		}
		text := func(i int) string {
			out, _ := json.Marshal(entries[i][0])
			return string(out)
		}
		sort.Slice(entries, func(i, j int) bool { return text(i) < text(j) })
		return answer{"map": entries}
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			out = append(out, value(it.Next()))
		}
		return out
	default:
		return answer{"other": val.Type().TypeName()}
	}
}

// decided is an authorizer that allows what is called "good" and fails for what is called "broken".
type decided struct{}

func (decided) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	words := []string{a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath()}
	if requirements, err := a.GetFieldSelector(); err == nil {
		for _, r := range requirements {
			words = append(words, fmt.Sprintf("%s%s%s", r.Field, r.Operator, r.Value))
		}
	}
	if requirements, err := a.GetLabelSelector(); err == nil {
		for _, r := range requirements {
			words = append(words, r.String())
		}
	}
	text := strings.Join(words, "|")
	switch {
	case strings.Contains(text, "broken"):
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("cannot say: %s", text)
	case strings.Contains(text, "good"):
		return authorizer.DecisionAllow, text, nil
	default:
		return authorizer.DecisionDeny, text, nil
	}
}

// requested is what the request is about.
type requested struct{}

func (requested) GetName() string        { return "good" }
func (requested) GetNamespace() string   { return "default" }
func (requested) GetSubresource() string { return "" }
func (requested) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}

// safely answers a question even if upstream panics over it.
func safely(q question) (out answer) {
	defer func() {
		if recover() != nil {
			out = answer{"panics": true}
		}
	}()
	return ask(q)
}

func ask(q question) answer {
	if q.Env == "device" {
		return askDevice(q)
	}
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	roots := &sizes{roots: map[string]*apiservercel.DeclType{}}
	variables := map[string]any{}
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	switch q.Env {
	case "plain":
		options.EnvOptions = []cel.EnvOption{cel.Variable("x", cel.DynType), cel.Variable("y", cel.DynType)}
		variables["x"], variables["y"] = q.X, q.Y
	case "authorizer":
		options.EnvOptions = []cel.EnvOption{
			cel.Variable("authorizer", library.AuthorizerType),
			cel.Variable("authorizer.requestResource", library.ResourceCheckType),
		}
		who := &user.DefaultInfo{Name: "somebody"}
		variables["authorizer"] = library.NewAuthorizerVal(who, decided{})
		variables["authorizer.requestResource"] = library.NewResourceAuthorizerVal(who, decided{}, requested{})
	default:
		parsed := &spec.Schema{}
		if err := json.Unmarshal(q.Schema, parsed); err != nil {
			return answer{"broken": err.Error()}
		}
		structure := &openapi.Schema{Schema: parsed}
		decl := common.SchemaDeclType(structure, q.Root)
		if decl == nil {
			return answer{"hidden": true}
		}
		decl = decl.MaybeAssignTypeName("selfType")
		roots.roots["self"], roots.roots["oldSelf"] = decl, decl
		options.DeclTypes = []*apiservercel.DeclType{decl}
		old := decl.CelType()
		if q.Env == "optional" {
			old = types.NewOptionalType(old)
		}
		options.EnvOptions = []cel.EnvOption{cel.Variable("self", decl.CelType()), cel.Variable("oldSelf", old)}
		var whole common.Schema = structure
		if q.Root {
			whole = structure.WithTypeAndObjectMeta()
		}
		variables["self"] = common.UnstructuredToVal(q.Self, whole)
		switch {
		case q.Env == "optional" && q.Old == nil:
			variables["oldSelf"] = types.OptionalNone
		case q.Env == "optional":
			variables["oldSelf"] = types.OptionalOf(common.UnstructuredToVal(q.Old, whole))
		case q.Old != nil:
			variables["oldSelf"] = common.UnstructuredToVal(q.Old, whole)
		}
	}
	key := fmt.Sprint(q.Env, q.Root, string(q.Schema))
	env := environments[key]
	if env == nil {
		set, err := set.Extend(options)
		if err != nil {
			return answer{"broken": err.Error()}
		}
		if env, err = set.Env(environment.StoredExpressions); err != nil {
			return answer{"broken": err.Error()}
		}
		environments[key] = env
	}
	ast, issues := env.Compile(q.Expr)
	if issues != nil && issues.Err() != nil {
		return answer{"refused": true, "why": issues.Err().Error()}
	}
	program, err := env.Program(ast)
	if err != nil {
		return answer{"refused": true, "why": err.Error()}
	}
	out := answer{"type": checker.FormatCELType(ast.OutputType())}
	estimate, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: roots})
	if err != nil {
		return answer{"broken": err.Error()}
	}
	out["least"], out["most"] = fmt.Sprint(estimate.Min), fmt.Sprint(estimate.Max)
	result, details, err := program.Eval(variables)
	if details != nil && details.ActualCost() != nil {
		out["cost"] = fmt.Sprint(*details.ActualCost())
	}
	if err != nil {
		out["failed"] = err.Error()
		return out
	}
	out["value"] = value(result)
	return out
}

func askDevice(q question) answer {
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})
	compiled := compiler.CompileCELExpression(q.Expr, dracel.Options{})
	if compiled.Error != nil {
		return answer{"refused": true, "why": compiled.Error.Detail}
	}
	out := answer{"most": fmt.Sprint(compiled.MaxCost)}
	matches, details, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   q.Device.Driver,
		AllowMultipleAllocations: q.Device.Multiple,
		Attributes:               q.Device.Attrs,
		Capacity:                 q.Device.Capacity,
	})
	if details != nil && details.ActualCost() != nil {
		out["cost"] = fmt.Sprint(*details.ActualCost())
	}
	if err != nil {
		out["failed"] = err.Error()
		return out
	}
	out["value"] = matches
	return out
}

// native turns numbers into what the API machinery has for them.
func native(in any) any {
	switch v := in.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = native(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = native(v[k])
		}
	}
	return in
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var q question
		decoder := json.NewDecoder(bytes.NewReader(in.Bytes()))
		decoder.UseNumber()
		if err := decoder.Decode(&q); err != nil {
			fmt.Fprintln(os.Stderr, err, in.Text())
			os.Exit(1)
		}
		q.X, q.Y, q.Self, q.Old = native(q.X), native(q.Y), native(q.Self), native(q.Old)
		text, err := json.Marshal(safely(q))
		if err != nil {
			fmt.Fprintln(os.Stderr, err, in.Text())
			os.Exit(1)
		}
		out.Write(text)
		out.WriteByte('\n')
	}
}
