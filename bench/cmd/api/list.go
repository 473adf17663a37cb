// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// list returns a line for each thing of a package that a program can use, sorted:
//
//	const Name type = value
//	func Name(parameters) results
//	method (T) Name(parameters) results
//	type Name struct comparable
//	type Name struct, field F type `tag`
//	type Name interface, ...
//	type Name ...
//	var Name type
//
// Parameters have no names, since those may change.
func list(p *types.Package) []string {
	l := lister{in: types.RelativeTo(p)}
	for _, name := range p.Scope().Names() {
		switch o := p.Scope().Lookup(name).(type) {
		case *types.Const:
			l.add(o, "const %s %s = %s", name, l.text(o.Type()), o.Val().ExactString())
		case *types.Var:
			l.add(o, "var %s %s", name, l.text(o.Type()))
		case *types.Func:
			l.add(o, "func %s%s", name, l.signature(o.Signature()))
		case *types.TypeName:
			if o.Exported() {
				l.typeName(o)
			}
		}
	}
	slices.Sort(l.lines)
	return l.lines
}

type lister struct {
	in    types.Qualifier
	lines []string
}

// text returns a type as the package writes it.
func (l *lister) text(t types.Type) string { return types.TypeString(t, l.in) }

// add adds a line, if the object is exported.
func (l *lister) add(o types.Object, format string, args ...any) {
	if o.Exported() {
		l.lines = append(l.lines, fmt.Sprintf(format, args...))
	}
}

func (l *lister) typeName(o *types.TypeName) {
	name := o.Name()
	if o.IsAlias() {
		l.add(o, "type %s = %s", name, l.text(types.Unalias(o.Type())))
		return
	}
	named := o.Type().(*types.Named)
	if params := named.TypeParams(); params.Len() > 0 {
		name = strings.TrimPrefix(l.text(named), ".")
	}
	switch t := named.Underlying().(type) {
	case *types.Struct:
		kind := "struct"
		if types.Comparable(t) {
			kind = "struct comparable"
		}
		l.add(o, "type %s %s", name, kind)
		l.fields(name, t)
	case *types.Interface:
		l.iface(o, name, t)
	default:
		l.add(o, "type %s %s", name, l.text(t))
	}
	// The methods of *T are all: those of T, and of embedded types.
	set := types.NewMethodSet(types.NewPointer(named))
	of := types.NewMethodSet(named)
	if types.IsInterface(named) {
		return
	}
	for m := range set.Methods() {
		receiver := "*" + name
		if of.Lookup(m.Obj().Pkg(), m.Obj().Name()) != nil {
			receiver = name
		}
		l.add(m.Obj(), "method (%s) %s%s", receiver, m.Obj().Name(), l.signature(m.Type().(*types.Signature)))
	}
}

// fields adds the fields of a struct, those of embedded structs without an exported name
// among them, since programs can use these too.
func (l *lister) fields(name string, t *types.Struct) {
	for i := range t.NumFields() {
		f := t.Field(i)
		what, tag := f.Name(), t.Tag(i)
		if f.Embedded() {
			what = "embedded " + what
			if inner, ok := pointee(f.Type()).Underlying().(*types.Struct); ok && !f.Exported() {
				l.fields(name, inner)
			}
		}
		if tag != "" {
			tag = " `" + tag + "`"
		}
		l.add(f, "type %s, field %s %s%s", name, what, l.text(f.Type()), tag)
	}
}

// pointee is what a pointer points to, or the type itself.
func pointee(t types.Type) types.Type {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// iface adds an interface. Other packages may implement one without unexported methods, so
// that another method breaks them: all are in one line. An interface that is sealed may get more.
func (l *lister) iface(o *types.TypeName, name string, t *types.Interface) {
	var methods []string
	sealed := false
	for m := range t.Methods() {
		sealed = sealed || !m.Exported()
		if m.Exported() {
			methods = append(methods, m.Name()+l.signature(m.Signature()))
		}
	}
	if !sealed {
		l.add(o, "type %s interface { %s }", name, strings.Join(methods, "; "))
		return
	}
	l.add(o, "type %s interface, sealed", name)
	for _, m := range methods {
		l.add(o, "method (%s) %s", name, m)
	}
}

// signature returns the parameters and results of a function without their names.
func (l *lister) signature(s *types.Signature) string {
	bare := func(t *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range t.Variables() {
			vars = append(vars, types.NewParam(v.Pos(), v.Pkg(), "", v.Type()))
		}
		return types.NewTuple(vars...)
	}
	text := strings.TrimPrefix(l.text(types.NewSignatureType(nil, nil, nil, bare(s.Params()), bare(s.Results()), s.Variadic())), "func")
	var params []string
	for p := range s.TypeParams().TypeParams() {
		params = append(params, p.Obj().Name()+" "+l.text(p.Constraint()))
	}
	if len(params) > 0 {
		text = "[" + strings.Join(params, ", ") + "]" + text
	}
	return text
}
