package template

import "regexp"

// looksLike is what Process takes for a reference, or would where it is the whole of a string.
var looksLike = regexp.MustCompile(`\$?\$\{\{[a-zA-Z0-9_]+\}\}|\$?\$\{[a-zA-Z0-9_]+\}`)

// Escape returns value, a tree of JSON values, as a template holds it: with one more $ before
// whatever Process would take for a reference, so that Process gives value back.
func Escape(value any) any {
	switch v := value.(type) {
	case string:
		return escapeText(v)
	case map[string]any:
		escaped := make(map[string]any, len(v))
		for key, item := range v {
			escaped[escapeText(key)] = Escape(item)
		}
		return escaped
	case []any:
		escaped := make([]any, len(v))
		for i, item := range v {
			escaped[i] = Escape(item)
		}
		return escaped
	}
	return value
}

func escapeText(text string) string {
	return looksLike.ReplaceAllStringFunc(text, func(reference string) string { return "$" + reference })
}
