package main

import (
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
)

// The parts of the Static Analysis Results Interchange Format 2.1.0 (OASIS) that
// validate writes. Columns are in UTF-16 code units, which is what readers take
// when they know of nothing else.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Version        string      `json:"version"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               schema.Rule `json:"id"`
		ShortDescription sarifText   `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool `json:"executionSuccessful"`
	}
	sarifResult struct {
		RuleID              schema.Rule       `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               string            `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
	}
)

// sarifOf returns what is wrong as a SARIF log. A mistake without a place, such
// as that no tenant is declared, is put at the module file, since readers want
// a place.
func sarifOf(c *compiledRepo) sarifLog {
	run := sarifRun{
		Tool: sarifTool{sarifDriver{
			Name: "muster", InformationURI: "https://github.com/musterhq/muster", Version: version, Rules: []sarifRule{},
		}},
		Invocations: []sarifInvocation{{ExecutionSuccessful: true}},
		ColumnKind:  "utf16CodeUnits",
		Results:     []sarifResult{},
	}
	rules := schema.Rules()
	for _, r := range rules {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{r.Rule, sarifText{r.Short}})
	}
	for _, d := range c.diagnostics {
		text := d.Message
		loc := sarifLocation{Physical: sarifPhysical{Artifact: sarifArtifact{c.uri(d.Path)}}}
		if d.Field != "" {
			text = d.Field + ": " + text
			loc.Logical = []sarifLogical{{screen.Printable(d.Field)}}
		}
		if d.Line > 0 {
			loc.Physical.Region = &sarifRegion{StartLine: d.Line, StartColumn: c.column(d.Position, utf16Len)}
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: d.Rule, RuleIndex: slices.IndexFunc(rules, func(r schema.RuleText) bool { return r.Rule == d.Rule }),
			Level: string(d.Severity), Message: sarifText{withAdvice(text, d)}, Locations: []sarifLocation{loc},
			// The line is left out: a mistake that moves is the same one.
			PartialFingerprints: map[string]string{"muster/v1": string(schema.DigestOf([]string{string(d.Rule), d.Path, d.Field, d.Message}))},
		})
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}

// uri returns the reference to a file of the repository.
func (c *compiledRepo) uri(name string) string {
	if name == "" {
		name = "cue.mod/module.cue"
	}
	if !utf8.ValidString(name) {
		name = screen.Printable(name)
	}
	return (&url.URL{Path: c.path(name)}).String()
}
