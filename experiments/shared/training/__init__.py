"""Models trained for a task: classifiers, readers of answers, and the loop that trains them."""
