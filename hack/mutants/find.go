/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"strings"
)

// A mutant is one careless change to the source. A switch enables it when the program runs.
type mutant struct {
	// ID stays the same while the changed code does: function, kind, code, and a number if that occurs more than once.
	ID   string
	file string
	// line and end are the first and the last line.
	line, end int
}

// function is the file and the function that is changed.
func (m mutant) function() string {
	parts := strings.SplitN(m.ID, ": ", 3)
	return strings.Join(parts[:len(parts)-1], ": ")
}

// An edit wraps the source between two offsets, or inserts at one.
type edit struct {
	start, end    int
	before, after string
	mutant        int
}

// finder collects the mutants of one file.
type finder struct {
	file    *token.File
	fset    *token.FileSet
	source  []byte
	path    string
	mutants *[]mutant
	edits   []edit
	seen    map[string]int

	function string
	results  []ast.Expr
	reader   bool
}

// find adds the mutants of a file to the list and returns the edits that create them.
func find(path string, source []byte, mutants *[]mutant) (*finder, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{fset: fset, file: fset.File(parsed.FileStart), source: source, path: path, mutants: mutants,
		seen: map[string]int{}}
	for _, d := range parsed.Decls {
		// Tests with a real API server cover how a controller registers its watches, but they are too slow for this.
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && fn.Name.Name != "Register" {
			f.function = functionName(fn)
			f.body(fn.Type, fn.Body)
		}
	}
	return f, nil
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// body walks a function. Its inner nodes know the function's results.
func (f *finder) body(signature *ast.FuncType, body *ast.BlockStmt) {
	outer := f.results
	f.results = nil
	if signature.Results != nil {
		for _, field := range signature.Results.List {
			for range max(1, len(field.Names)) {
				f.results = append(f.results, field.Type)
			}
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if literal, ok := n.(*ast.FuncLit); ok {
			f.body(literal.Type, literal.Body)
			return false
		}
		f.node(n)
		return true
	})
	f.results = outer
}

func (f *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.condition("if", n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.wrap(n.Cond, "never for", "mutantBool(%d, false, ", ")")
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			f.cases(n)
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.CompositeLit:
		f.fields(n)
	case *ast.CallExpr:
		f.live(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
}

func (f *finder) condition(where string, e ast.Expr) {
	f.wrap(e, "never "+where, "mutantBool(%d, false, ", ")")
	f.wrap(e, "always "+where, "mutantBool(%d, true, ", ")")
}

func (f *finder) cases(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			f.condition("case", e)
		}
	}
}

// binary omits operands of && and ||, and includes or excludes the limit of a comparison.
func (f *finder) binary(e *ast.BinaryExpr) {
	limits := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	switch e.Op {
	case token.LAND, token.LOR:
		for _, operand := range []ast.Expr{e.X, e.Y} {
			if inner, ok := operand.(*ast.BinaryExpr); ok && inner.Op == e.Op {
				continue // its own operands are omitted one by one
			}
			f.wrap(operand, "without", fmt.Sprintf("mutantBool(%%d, %t, ", e.Op == token.LAND), ")")
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if f.file.Line(e.Pos()) != f.file.Line(e.End()) {
			return // its copy would not fit on one line
		}
		other := f.text(e.X) + limits[e.Op] + f.text(e.Y)
		f.wrap(e, limits[e.Op]+" for", "mutantElse(%d, func() bool { return "+other+" }, func() bool { return ", "})")
	}
}

// returned changes a function's results: the other bool, no error.
func (f *finder) returned(s *ast.ReturnStmt) {
	if len(s.Results) != len(f.results) {
		return
	}
	for i, e := range s.Results {
		result, ok := f.results[i].(*ast.Ident)
		name, _ := e.(*ast.Ident)
		switch {
		case !ok:
		case result.Name == "bool" && name != nil && (name.Name == "true" || name.Name == "false"):
			f.wrap(e, fmt.Sprintf("not (result %d)", i), "mutantNot(%d, ", ")")
		case result.Name == "bool":
			f.condition(fmt.Sprintf("result %d", i), e)
		case result.Name == "error" && (name == nil || name.Name != "nil"):
			f.wrap(e, "no error", "mutantNoError(%d, ", ")")
		}
	}
}

// fields omits the values of fields.
func (f *finder) fields(l *ast.CompositeLit) {
	for _, element := range l.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); ok {
			f.wrapAs(pair.Value, "field "+key.Name, f.text(pair.Value), "mutantZero(%d, ", ")")
		}
	}
}

// live replaces a live read with a read from the cache.
func (f *finder) live(call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	reader, ok := method.X.(*ast.SelectorExpr)
	if !ok || reader.Sel.Name != "Reader" {
		return
	}
	f.reader = true
	cached := f.text(reader.X) + ".Client"
	f.wrapAs(reader, "cached", f.text(call), "mutantReader(%d, "+cached+", ", ")")
}

// statements omits statements.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if !onlyLogs(f.text(s)) {
				f.without(s)
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.without(s)
			}
		case *ast.IncDecStmt:
			f.without(s)
		case *ast.BranchStmt:
			if s.Tok != token.FALLTHROUGH {
				f.without(s)
			}
		case *ast.DeferStmt:
			if !onlyLogs(f.text(s)) {
				f.without(s)
			}
		}
	}
}

func (f *finder) without(s ast.Stmt) {
	f.wrap(s, "without", "if !mutantOn(%d) {", "}")
}

// onlyLogs reports whether only logs, or a deadlock, would show that the statement is missing.
func onlyLogs(statement string) bool {
	for _, s := range []string{".Info(", ".Error(", "Unlock()", ".Lock()", "panic(", "log(", "a.step("} {
		if strings.Contains(statement, s) {
			return true
		}
	}
	return false
}

func (f *finder) wrap(n ast.Node, kind, before, after string) {
	f.wrapAs(n, kind, f.text(n), before, after)
}

func (f *finder) wrapAs(n ast.Node, kind, text, before, after string) {
	id := fmt.Sprintf("%s: %s: %s: %s", f.path, f.function, kind, short(text))
	f.seen[id]++
	if k := f.seen[id]; k > 1 {
		id = fmt.Sprintf("%s #%d", id, k)
	}
	number := len(*f.mutants)
	*f.mutants = append(*f.mutants, mutant{ID: id, file: f.path, line: f.file.Line(n.Pos()), end: f.file.Line(n.End())})
	f.edits = append(f.edits, edit{
		start: f.file.Offset(n.Pos()), end: f.file.Offset(n.End()),
		before: fmt.Sprintf(before, number), after: after, mutant: number,
	})
}

// text is the source of a node on one line.
func (f *finder) text(n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, f.fset, n); err != nil {
		panic(err) // what was parsed can be printed
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func short(text string) string {
	const most = 120
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
