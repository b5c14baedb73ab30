// Reads the Go types of Kubernetes' published API modules and prints the facts about
// their fields (JSON name, protobuf number, type, list and patch behaviour) as a Rust table.
// No sentence of the sources is copied, only names, numbers and markers.
//
// Usage: kinds <folder of k8s.io/api> <folder of k8s.io/apimachinery> <folder of k8s.io/apiextensions-apiserver> [go]
// With `go` it prints how Go itself names and orders the fields of a pod template, which controllers' hashes are made of.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// pkg is one Go package whose types are read.
type pkg struct {
	path    string // import path
	open    string // dotted prefix of its OpenAPI definitions
	imports map[string]map[string]string
	types   map[string]*decl
	consts  map[string]string // literals of constants, for defaults that name one
}

// decl is one type declaration with its comment.
type decl struct {
	pkg  *pkg
	name string
	spec *ast.TypeSpec
	file string
	doc  string
}

// field is a row of the table.
type field struct {
	name, ty, card, flags, mergeKey, def string
	keys                                 []string
	number, via                          int
}

// message is a struct of the API.
type message struct {
	d      *decl
	index  int
	fields []field
	atomic bool
}

var apiPackages = []string{
	"core/v1", "apps/v1", "batch/v1", "policy/v1", "storage/v1", "node/v1", "scheduling/v1", "resource/v1",
	"events/v1", "discovery/v1", "coordination/v1", "networking/v1", "rbac/v1", "authentication/v1",
	"authorization/v1", "autoscaling/v1", "autoscaling/v2", "certificates/v1", "admissionregistration/v1", "flowcontrol/v1",
}

// specials are types whose JSON or wire shape is their own.
var specials = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   "T::Quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": "T::IntOrString",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       "T::Time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  "T::MicroTime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   "T::Duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":   "T::Fields",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    "T::Raw",
	"k8s.io/apimachinery/pkg/runtime.Object":          "T::Raw",
	"k8s.io/apimachinery/pkg/types.UID":               "T::Str",
	"k8s.io/apimachinery/pkg/types.NodeName":          "T::Str",
	"k8s.io/apimachinery/pkg/types.NamespacedName":    "T::Str",
	extensions + ".JSON":                              "T::Json",
}

const extensions = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// alternatives are a schema or something simpler.
var alternatives = map[string]string{
	"JSONSchemaPropsOrBool": "Bool", "JSONSchemaPropsOrArray": "Schemas", "JSONSchemaPropsOrStringArray": "Strings",
}

var (
	packages = map[string]*pkg{}
	messages = map[string]*message{}
	order    []*message
)

func main() {
	api, machinery := os.Args[1], os.Args[2]
	load(extensions, filepath.Join(os.Args[3], "pkg/apis/apiextensions/v1"), "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1")
	load("k8s.io/apimachinery/pkg/apis/meta/v1", filepath.Join(machinery, "pkg/apis/meta/v1"), "io.k8s.apimachinery.pkg.apis.meta.v1")
	for _, p := range apiPackages {
		load("k8s.io/api/"+p, filepath.Join(api, p), "io.k8s.api."+strings.ReplaceAll(p, "/", "."))
	}
	paths := make([]string, 0, len(packages))
	for p := range packages {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		names := make([]string, 0)
		for n := range packages[p].types {
			names = append(names, n)
		}
		sort.Strings(names)
		for _, n := range names {
			d := packages[p].types[n]
			if st, ok := d.spec.Type.(*ast.StructType); ok && tagged(st) && specials[p+"."+n] == "" && n != "TypeMeta" {
				use(d)
			}
		}
	}
	for _, m := range order {
		m.fields = fieldsOf(m.d, 0)
		sort.Slice(m.fields, func(i, j int) bool { return m.fields[i].name < m.fields[j].name })
	}
	if len(os.Args) > 4 && os.Args[4] == "go" {
		emitGo(packages["k8s.io/api/core/v1"].types["PodTemplateSpec"])
		return
	}
	emit()
}

func load(path, dir, open string) {
	p := &pkg{path: path, open: open, imports: map[string]map[string]string{}, types: map[string]*decl{}, consts: map[string]string{}}
	packages[path] = p
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	check(err)
	set := token.NewFileSet()
	for _, name := range files {
		base := filepath.Base(name)
		if strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "zz_") || strings.HasPrefix(base, "generated.") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		check(err)
		p.imports[name] = map[string]string{}
		for _, i := range f.Imports {
			ip, _ := strconv.Unquote(i.Path.Value)
			alias := filepath.Base(ip)
			if i.Name != nil {
				alias = i.Name.Name
			} else if alias == "v1" {
				alias = "v1"
			}
			p.imports[name][alias] = ip
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			if g.Tok == token.CONST {
				constants(p, g)
			}
			if g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				t := s.(*ast.TypeSpec)
				doc := g.Doc.Text() + markers(g.Doc) + markers(t.Doc)
				// Markers may sit in a comment group of their own above the declaration.
				for _, c := range f.Comments {
					gap := set.Position(g.Pos()).Line - set.Position(c.End()).Line
					if g.Doc != nil {
						gap = set.Position(g.Doc.Pos()).Line - set.Position(c.End()).Line
					}
					if gap > 0 && gap <= 2 {
						doc += markers(c)
					}
				}
				p.types[t.Name.Name] = &decl{p, t.Name.Name, t, name, doc}
			}
		}
	}
}

func constants(p *pkg, g *ast.GenDecl) {
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		for i, n := range v.Names {
			if i < len(v.Values) {
				if l, ok := v.Values[i].(*ast.BasicLit); ok {
					p.consts[n.Name] = l.Value
				}
			}
		}
	}
}

func markers(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	out := ""
	for _, l := range c.List {
		t := strings.TrimSpace(strings.TrimPrefix(l.Text, "//"))
		if strings.HasPrefix(t, "+") {
			out += t + "\n"
		}
	}
	return out
}

func tagged(st *ast.StructType) bool {
	for _, f := range st.Fields.List {
		if f.Tag != nil && strings.Contains(f.Tag.Value, "json:") {
			return true
		}
	}
	return len(st.Fields.List) == 0
}

func use(d *decl) *message {
	key := d.pkg.path + "." + d.name
	if m := messages[key]; m != nil {
		return m
	}
	m := &message{d: d, index: len(order), atomic: strings.Contains(d.doc, "+structType=atomic")}
	messages[key] = m
	order = append(order, m)
	return m
}

func fieldsOf(d *decl, via int) []field {
	st := d.spec.Type.(*ast.StructType)
	var out []field
	for _, f := range st.Fields.List {
		if f.Tag == nil {
			continue
		}
		raw, _ := strconv.Unquote(f.Tag.Value)
		tag := reflect.StructTag(raw)
		js := strings.Split(tag.Get("json"), ",")
		if js[0] == "-" {
			continue
		}
		number := 0
		if pb := strings.Split(tag.Get("protobuf"), ","); len(pb) > 1 {
			number, _ = strconv.Atoi(pb[1])
		}
		if js[0] == "" {
			inner := resolve(d, f.Type)
			if inner == nil {
				continue
			}
			// Two levels of inlined messages are written as outer*100+inner.
			v := via
			if number != 0 {
				v = via*100 + number
			}
			inlined := fieldsOf(inner, v)
			for i := range inlined {
				// TypeMeta travels in the envelope, not in the message.
				if number == 0 {
					inlined[i].number = 0
				}
			}
			out = append(out, inlined...)
			continue
		}
		out = append(out, row(d, f, js, number, via, tag))
	}
	return out
}

func row(d *decl, f *ast.Field, js []string, number, via int, tag reflect.StructTag) field {
	r := field{name: js[0], number: number, via: via, card: "One"}
	doc := markers(f.Doc)
	var flags []string
	add := func(s string) { flags = append(flags, s) }
	t := f.Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
		add("P")
	}
	r.ty, r.card = typeOf(d, t, 0)
	omit := false
	for _, o := range js[1:] {
		if o == "omitempty" {
			add("E")
			omit = true
		}
		if o == "omitzero" {
			add("Z")
			omit = true
		}
	}
	if !strings.Contains(doc, "+optional") && (!omit || strings.Contains(doc, "+required")) {
		add("R")
	}
	for _, l := range strings.Split(doc, "\n") {
		switch {
		case l == "+listType=map":
			add("LM")
		case l == "+listType=set":
			add("LS")
		case l == "+listType=atomic":
			add("LA")
		case l == "+structType=atomic" || l == "+mapType=atomic":
			add("A")
		case strings.HasPrefix(l, "+listMapKey="):
			r.keys = append(r.keys, strings.Trim(strings.TrimPrefix(l, "+listMapKey="), "\"` "))
		case strings.HasPrefix(l, "+default="):
			r.def = strings.TrimPrefix(l, "+default=")
			if name, ok := strings.CutPrefix(r.def, "ref("); ok {
				parts := strings.Split(strings.TrimSuffix(name, ")"), ".")
				r.def = d.pkg.consts[parts[len(parts)-1]]
			}
			r.def = strings.Trim(r.def, "`")
		}
	}
	if n := named(d, t); n != nil && strings.Contains(n.doc, "+mapType=atomic") {
		add("A")
	}
	for _, s := range strings.Split(tag.Get("patchStrategy"), ",") {
		switch s {
		case "merge":
			add("PM")
		case "retainKeys":
			add("PR")
		case "replace":
			add("PX")
		}
	}
	r.mergeKey = tag.Get("patchMergeKey")
	if len(flags) == 0 {
		flags = []string{"0"}
	}
	r.flags = strings.Join(flags, "|")
	return r
}

func named(d *decl, e ast.Expr) *decl {
	switch x := e.(type) {
	case *ast.Ident:
		return d.pkg.types[x.Name]
	case *ast.SelectorExpr:
		path := d.pkg.imports[d.file][x.X.(*ast.Ident).Name]
		if p := packages[path]; p != nil {
			return p.types[x.Sel.Name]
		}
	}
	return nil
}

// resolve follows a (pointer to a) named struct.
func resolve(d *decl, e ast.Expr) *decl {
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	n := named(d, e)
	if n == nil {
		return nil
	}
	if _, ok := n.spec.Type.(*ast.StructType); ok {
		return n
	}
	return resolve(n, n.spec.Type)
}

var basics = map[string]string{
	"string": "T::Str", "bool": "T::Bool", "int32": "T::I32", "int64": "T::I64", "int": "T::I64", "uint8": "T::I32", "uint16": "T::I32", "uint32": "T::I64",
	"uint64": "T::I64", "float64": "T::F64", "float32": "T::F64", "any": "T::Json",
}

func typeOf(d *decl, e ast.Expr, depth int) (string, string) {
	switch x := e.(type) {
	case *ast.StarExpr:
		return typeOf(d, x.X, depth)
	case *ast.InterfaceType:
		return "T::Json", "One"
	case *ast.ArrayType:
		if id, ok := x.Elt.(*ast.Ident); ok && (id.Name == "byte" || id.Name == "uint8") {
			return "T::Bytes", "One"
		}
		t, c := typeOf(d, x.Elt, depth+1)
		if c != "One" {
			return "T::Json", "List"
		}
		return t, "List"
	case *ast.MapType:
		t, c := typeOf(d, x.Value, depth+1)
		if c == "List" && t == "T::Str" {
			return "T::Strs", "Map"
		}
		if c != "One" {
			return "T::Json", "Map"
		}
		return t, "Map"
	case *ast.Ident:
		if b, ok := basics[x.Name]; ok {
			return b, "One"
		}
		if s := specials[d.pkg.path+"."+x.Name]; s != "" {
			return s, "One"
		}
		n := d.pkg.types[x.Name]
		if n == nil {
			panic("unknown type " + d.pkg.path + "." + x.Name)
		}
		return declared(n, depth)
	case *ast.SelectorExpr:
		path := d.pkg.imports[d.file][x.X.(*ast.Ident).Name]
		if s := specials[path+"."+x.Sel.Name]; s != "" {
			return s, "One"
		}
		p := packages[path]
		if p == nil {
			panic("unknown package of " + path + "." + x.Sel.Name + " in " + d.name)
		}
		return declared(p.types[x.Sel.Name], depth)
	}
	panic(fmt.Sprintf("type %T in %s", e, d.name))
}

func declared(n *decl, depth int) (string, string) {
	if other := alternatives[n.name]; other != "" && n.pkg.path == extensions {
		return fmt.Sprintf("O(%d,Or::%s)", use(n.pkg.types["JSONSchemaProps"]).index, other), "One"
	}
	if _, ok := n.spec.Type.(*ast.StructType); ok {
		m := use(n)
		return fmt.Sprintf("M(%d)", m.index), "One"
	}
	// A nullable list of strings is a message of its own on the wire.
	if strings.Contains(n.doc, "+protobuf.nullable=true") && depth == 0 {
		return "T::Strs", "One"
	}
	return typeOf(n, n.spec.Type, depth)
}

func emit() {
	fmt.Println("//! The facts about every API message, written by `cargo xtask gen kinds`; do not edit.")
	fmt.Println()
	fmt.Println("use super::{Field, Message, Type as T, Type::Message as M, Type::SchemaOr as O, Or, f, m};")
	fmt.Println("use super::Cardinality::{List, Map, One};")
	fmt.Println("use super::flag::{A, E, LA, LM, LS, P, PM, PR, PX, R, Z};")
	fmt.Println()
	fmt.Println("#[rustfmt::skip]")
	fmt.Printf("pub(crate) static MESSAGES: [Message; %d] = [\n", len(order))
	for _, m := range order {
		atomic := "false"
		if m.atomic {
			atomic = "true"
		}
		fmt.Printf("m(%q, %d, %s, F%d),\n", m.d.pkg.open+"."+m.d.name, m.index, atomic, m.index)
	}
	fmt.Println("];")
	for _, m := range order {
		fmt.Printf("#[rustfmt::skip]\nstatic F%d: &[Field] = &[\n", m.index)
		for _, r := range m.fields {
			keys := make([]string, 0)
			for _, k := range r.keys {
				keys = append(keys, strconv.Quote(k))
			}
			fmt.Printf("f(%q,%d,%d,%s,%s,%s,&[%s],%q,%q),\n", r.name, r.number, r.via, r.ty, r.card, r.flags, strings.Join(keys, ","), r.mergeKey, r.def)
		}
		fmt.Println("];")
	}
	fmt.Println("/// Index of a message, by a short name the kinds table uses.")
	fmt.Println("#[allow(dead_code, reason = \"one constant per top-level message, used or not\")]")
	fmt.Println("#[rustfmt::skip]")
	fmt.Println("pub(crate) mod index {")
	seen := map[string]bool{}
	for _, m := range order {
		parts := strings.Split(m.d.pkg.open, ".")
		c := strings.ToUpper(strings.Join(parts[len(parts)-2:], "_")) + "_" + strings.ToUpper(m.d.name)
		if seen[c] {
			continue
		}
		seen[c] = true
		if !topLevel(m) {
			continue
		}
		fmt.Printf("pub(crate) const %s: u16 = %d;\n", c, m.index)
	}
	fmt.Println("}")
}

// topLevel tells whether a message carries its own kind and version.
func topLevel(m *message) bool {
	for _, r := range m.fields {
		if r.name == "kind" && r.number == 0 {
			return true
		}
	}
	return m.d.name == "ObjectMeta" || m.d.name == "PodTemplateSpec"
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// goType is a type as Go's fmt prints it; every struct and named type that it leads to is queued.
func goType(d *decl, e ast.Expr, queue *[]*decl) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return "*" + goType(d, x.X, queue)
	case *ast.ArrayType:
		return "[]" + goType(d, x.Elt, queue)
	case *ast.MapType:
		return "map[" + goType(d, x.Key, queue) + "]" + goType(d, x.Value, queue)
	case *ast.Ident:
		n := d.pkg.types[x.Name]
		if n == nil {
			return x.Name
		}
		if specials[d.pkg.path+"."+x.Name] == "" {
			*queue = append(*queue, n)
		}
		return filepath.Base(d.pkg.path) + "." + x.Name
	case *ast.SelectorExpr:
		path := d.pkg.imports[d.file][x.X.(*ast.Ident).Name]
		if p := packages[path]; p != nil && specials[path+"."+x.Sel.Name] == "" {
			*queue = append(*queue, p.types[x.Sel.Name])
		}
		return filepath.Base(path) + "." + x.Sel.Name
	}
	panic(fmt.Sprintf("type %T in %s", e, d.name))
}

func emitGo(root *decl) {
	fmt.Println("//! How Go names and orders what a pod template is made of, written by `cargo xtask gen kinds`; do not edit.")
	fmt.Println()
	fmt.Println("use super::GoType::{self, Named, Struct};")
	fmt.Println("use super::g;")
	fmt.Println()
	fmt.Println("#[rustfmt::skip]")
	fmt.Println("pub(super) static TYPES: &[(&str, GoType)] = &[")
	lines := []string{}
	seen := map[*decl]bool{}
	queue := []*decl{root}
	for len(queue) > 0 {
		d := queue[0]
		queue = queue[1:]
		if d == nil || seen[d] {
			continue
		}
		seen[d] = true
		name := filepath.Base(d.pkg.path) + "." + d.name
		st, ok := d.spec.Type.(*ast.StructType)
		if !ok {
			lines = append(lines, fmt.Sprintf("(%q, Named(%q)),", name, goType(d, d.spec.Type, &queue)))
			continue
		}
		fields := []string{}
		for _, f := range st.Fields.List {
			raw, _ := strconv.Unquote(f.Tag.Value)
			js := strings.Split(reflect.StructTag(raw).Get("json"), ",")[0]
			ty := goType(d, f.Type, &queue)
			goName := ty[strings.LastIndex(ty, ".")+1:]
			if len(f.Names) > 0 {
				goName = f.Names[0].Name
			}
			fields = append(fields, fmt.Sprintf("g(%q,%q,%q)", goName, js, ty))
		}
		lines = append(lines, fmt.Sprintf("(%q, Struct(&[%s])),", name, strings.Join(fields, ", ")))
	}
	sort.Strings(lines)
	for _, l := range lines {
		fmt.Println(l)
	}
	fmt.Println("];")
}
