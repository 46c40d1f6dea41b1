package template

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// term is one [class]{n} of an expression; what stands in the braces is checked later, so that a
// length that is none is an error and no literal text.
var term = regexp.MustCompile(`\[([^\]]*)\]\{([^}]*)\}`)

// classes behind the escapes of an expression.
const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	symbols = "~!@#$%^&*()-_+={}[]\\|<,>.?/\"';:`"
	// ranged is the order in which a range such as a-z, G-2 or a-9 counts.
	ranged = lower + upper + digits
)

// maxRepeat is the most characters that one term may ask for.
const maxRepeat = 255

// Generate returns a random string for expression: literal text and terms such as
// [a-zA-Z0-9]{16} or [\w]{8}, n from 1 to 255. A range holds both its ends. The source
// is crypto/rand, so a result may serve as a password.
func Generate(expression string) (string, error) {
	if expression == "" {
		return "", errors.New("from: an expression is required, such as [a-z0-9]{8}")
	}
	var out strings.Builder
	rest := expression
	for {
		at := term.FindStringSubmatchIndex(rest)
		if at == nil {
			out.WriteString(rest)
			return out.String(), nil
		}
		out.WriteString(rest[:at[0]])
		if err := appendTerm(&out, rest[at[2]:at[3]], rest[at[4]:at[5]]); err != nil {
			return "", fmt.Errorf("from: %q: %w", expression, err)
		}
		rest = rest[at[1]:]
	}
}

func appendTerm(out *strings.Builder, class, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxRepeat {
		return fmt.Errorf("{%s}: the length is a number from 1 to %d", count, maxRepeat)
	}
	alphabet, err := expand(class)
	if err != nil {
		return err
	}
	for range n {
		i, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			return fmt.Errorf("reading random numbers: %w", err)
		}
		out.WriteByte(alphabet[i.Int64()])
	}
	return nil
}

// expand lists the characters of a class, each once.
func expand(class string) (string, error) {
	seen := map[byte]bool{}
	var alphabet []byte
	add := func(chars string) {
		for i := range len(chars) {
			if !seen[chars[i]] {
				seen[chars[i]] = true
				alphabet = append(alphabet, chars[i])
			}
		}
	}
	for i := 0; i < len(class); i++ {
		switch {
		case class[i] == '\\' && i+1 < len(class):
			i++
			named, ok := map[byte]string{'w': ranged + "_", 'd': digits, 'a': ranged, 'A': symbols}[class[i]]
			if !ok {
				return "", fmt.Errorf("[%s]: \\%c is not known; \\w, \\d, \\a and \\A are", class, class[i])
			}
			add(named)
		case i+2 < len(class) && class[i+1] == '-':
			chars, err := between(class[i], class[i+2])
			if err != nil {
				return "", fmt.Errorf("[%s]: %w", class, err)
			}
			add(chars)
			i += 2
		default:
			add(class[i : i+1])
		}
	}
	if len(alphabet) == 0 {
		return "", errors.New("[]: the class is empty")
	}
	return string(alphabet), nil
}

// between lists the characters from first to last, both among them.
func between(first, last byte) (string, error) {
	from, to := strings.IndexByte(ranged, first), strings.IndexByte(ranged, last)
	if from < 0 || to < from {
		return "", fmt.Errorf("%c-%c is no range; a-z, A-Z, 0-9, parts of them and ranges over them in this order are", first, last)
	}
	return ranged[from : to+1], nil
}
