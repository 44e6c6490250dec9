/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

// Package scale makes the alerts of Hawser faster, for a test that cannot wait for hours.
package scale

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// Rule is one alert of config/prometheus/hawser.yaml.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Rules is the file.
type Rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []Rule `json:"rules"`
	} `json:"groups"`
}

// Parse reads the file.
func Parse(text []byte) (*Rules, error) {
	rules := &Rules{}
	if err := yaml.UnmarshalStrict(text, rules); err != nil {
		return nil, fmt.Errorf("reading the alerts: %w", err)
	}
	return rules, nil
}

// All rules of all groups.
func (r *Rules) All() []Rule {
	var all []Rule
	for _, group := range r.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

var (
	// window is the range of a selector.
	window = regexp.MustCompile(`\[[0-9a-z]+\]`)
	// threshold is what the seconds of a metric are compared with, or for how many seconds a trend is continued.
	threshold = regexp.MustCompile(`> [0-9]{3,}\b|\* 86400\b`)
	ofSeconds = regexp.MustCompile(`_seconds\b`)
)

// Divide divides every duration of the rules: for, windows, and thresholds in seconds.
func (r *Rules) Divide(by int) error {
	for g := range r.Groups {
		for i := range r.Groups[g].Rules {
			rule := &r.Groups[g].Rules[i]
			var err error
			if rule.For, err = shorter(rule.For, by); err != nil {
				return fmt.Errorf("alert %s: %w", rule.Alert, err)
			}
			rule.Expr = window.ReplaceAllStringFunc(rule.Expr, func(s string) string {
				duration, wrong := shorter(s[1:len(s)-1], by)
				if wrong != nil {
					err = wrong
				}
				return "[" + duration + "]"
			})
			rule.Expr = threshold.ReplaceAllStringFunc(rule.Expr, func(s string) string {
				if strings.HasPrefix(s, ">") && !ofSeconds.MatchString(rule.Expr) {
					return s
				}
				seconds, _ := strconv.ParseFloat(s[2:], 64) // the expression has digits only
				return s[:2] + strconv.FormatFloat(seconds/float64(by), 'f', -1, 64)
			})
			if err != nil {
				return fmt.Errorf("alert %s: %w", rule.Alert, err)
			}
		}
	}
	return nil
}

func shorter(duration string, by int) (string, error) {
	if duration == "" {
		return "", nil
	}
	d, err := model.ParseDuration(duration)
	if err != nil {
		return "", fmt.Errorf("reading duration %q: %w", duration, err)
	}
	return model.Duration((time.Duration(d) / time.Duration(by)).Round(time.Millisecond)).String(), nil
}
