// The functions of the corpus. A line that starts with //= says what the function below it does;
// a line that starts with //? says the same of one that is kept from training.

//= returns the sum of a slice of int
func Sum(values []int) int {
	total := 0
	for _, value := range values {
		total += value
	}
	return total
}

//= returns the largest value of a slice of int
func Max(values []int) int {
	best := values[0]
	for _, value := range values {
		if value > best {
			best = value
		}
	}
	return best
}

//= returns the smallest value of a slice of int
func Min(values []int) int {
	best := values[0]
	for _, value := range values {
		if value < best {
			best = value
		}
	}
	return best
}

//= counts the even values of a slice of int
func CountEven(values []int) int {
	count := 0
	for _, value := range values {
		if value%2 == 0 {
			count++
		}
	}
	return count
}

//= counts the odd values of a slice of int
func CountOdd(values []int) int {
	count := 0
	for _, value := range values {
		if value%2 == 1 {
			count++
		}
	}
	return count
}

//= reports whether a slice of int contains a value
func Contains(values []int, want int) bool {
	for _, value := range values {
		if value == want {
			return true
		}
	}
	return false
}

//= returns the index of a value in a slice of int
func Index(values []int, want int) int {
	for i, value := range values {
		if value == want {
			return i
		}
	}
	return -1
}

//= reverses a slice of int in place
func Reverse(values []int) {
	for i, j := 0, len(values)-1; i < j; i, j = i+1, j-1 {
		values[i], values[j] = values[j], values[i]
	}
}

//= doubles every value of a slice of int
func Double(values []int) []int {
	result := make([]int, 0, len(values))
	for _, value := range values {
		result = append(result, value*2)
	}
	return result
}

//= squares every value of a slice of int
func Square(values []int) []int {
	result := make([]int, 0, len(values))
	for _, value := range values {
		result = append(result, value*value)
	}
	return result
}

//= keeps the positive values of a slice of int
func Positive(values []int) []int {
	result := make([]int, 0, len(values))
	for _, value := range values {
		if value > 0 {
			result = append(result, value)
		}
	}
	return result
}

//= returns the factorial of an int
func Factorial(n int) int {
	result := 1
	for i := 2; i <= n; i++ {
		result *= i
	}
	return result
}

//= returns the absolute value of an int
func Abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// Sign tells whether an int is negative.
func Sign(n int) bool {
	return n < 0
}

//= returns the keys of a map of string to int
func Keys(counts map[string]int) []string {
	result := make([]string, 0, len(counts))
	for key := range counts {
		result = append(result, key)
	}
	return result
}

//= counts the words of a slice of string
func CountWords(words []string) map[string]int {
	counts := make(map[string]int)
	for _, word := range words {
		counts[word]++
	}
	return counts
}

//= joins a slice of string with a comma
func Join(words []string) string {
	result := ""
	for i, word := range words {
		if i > 0 {
			result += ", "
		}
		result += word
	}
	return result
}

//? counts the positive values of a slice of int
func CountPositive(values []int) int {
	count := 0
	for _, value := range values {
		if value > 0 {
			count++
		}
	}
	return count
}

//? keeps the even values of a slice of int
func Even(values []int) []int {
	result := make([]int, 0, len(values))
	for _, value := range values {
		if value%2 == 0 {
			result = append(result, value)
		}
	}
	return result
}
