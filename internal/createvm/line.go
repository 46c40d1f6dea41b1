package createvm

import (
	"errors"
	"strings"
)

// Words splits a line into arguments as a shell does: at white space, with single quotes,
// double quotes and backslashes. Nothing is expanded: a $ is a $.
func Words(line string) ([]string, error) {
	s := &splitter{}
	for _, r := range line {
		s.next(r)
	}
	switch {
	case s.quote != 0:
		return nil, errors.New("the quote " + string(s.quote) + " is not closed")
	case s.escaped:
		return nil, errors.New("nothing follows the backslash at the end; write \\\\ for a backslash")
	}
	s.end()
	return s.words, nil
}

// splitter is where the reading of a line has come to.
type splitter struct {
	words   []string
	word    strings.Builder
	begun   bool // there is a word, even if it is empty
	escaped bool // the last character was a backslash
	quote   rune // the open quote, 0 for none
}

func (s *splitter) next(r rune) {
	switch {
	case s.escaped:
		s.escaped = false
		if r == '\n' { // the line goes on
			return
		}
		if s.quote == '"' && !strings.ContainsRune("\\\"$`", r) {
			s.add('\\')
		}
		s.add(r)
	case r == '\\' && s.quote != '\'':
		s.escaped = true
	case s.quote != 0 && r == s.quote:
		s.quote = 0
	case s.quote != 0:
		s.add(r)
	case r == '\'' || r == '"':
		s.quote, s.begun = r, true
	case strings.ContainsRune(" \t\r\n", r):
		s.end()
	default:
		s.add(r)
	}
}

func (s *splitter) add(r rune) {
	s.word.WriteRune(r)
	s.begun = true
}

func (s *splitter) end() {
	if s.begun {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.begun = false
}
